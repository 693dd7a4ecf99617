"""Checks AMQP over TLS through pika.

Usage: tls.py HOST PORT CA-FILE [CERT-FILE KEY-FILE]

With a certificate it logs in by EXTERNAL, else as guest. Prints "done" at the end.
"""

import os
import ssl
import sys

import pika
from pika.credentials import ExternalCredentials, PlainCredentials

host, port, ca = sys.argv[1:4]
context = ssl.create_default_context(cafile=ca)
credentials = PlainCredentials("guest", "guest")
if len(sys.argv) > 4:
    context.load_cert_chain(sys.argv[4], sys.argv[5])
    credentials = ExternalCredentials()
connection = pika.BlockingConnection(
    pika.ConnectionParameters(
        host, int(port), credentials=credentials, ssl_options=pika.SSLOptions(context, host)
    )
)
channel = connection.channel()
channel.confirm_delivery()
queue = "pika.tls.%d" % os.getpid()
channel.queue_declare(queue, durable=True)
body = os.urandom(300000)  # more than one frame, many records
channel.basic_publish("", queue, body, pika.BasicProperties(delivery_mode=2))
method, _, got = channel.basic_get(queue, auto_ack=True)
assert method and got == body, "the message came back changed"
channel.queue_delete(queue)
connection.close()
print("done", flush=True)
