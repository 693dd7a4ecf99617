"""Requests and direct replies through pika.

Usage: reply.py URL-OF-REQUESTER URL-OF-RESPONDER
"""

import os
import sys

import pika

REPLY_TO = "amq.rabbitmq.reply-to"
QUEUE = "pika.requests.%d" % os.getpid()
REQUESTS = 50


def main(requester_url, responder_url):
    requester = pika.BlockingConnection(pika.URLParameters(requester_url))
    responder = pika.BlockingConnection(pika.URLParameters(responder_url))
    asking, answering = requester.channel(), responder.channel()
    asking.queue_declare(QUEUE, durable=True)

    def answer(channel, method, properties, body):
        channel.basic_publish(
            "",
            properties.reply_to,
            b"answer to " + body,
            pika.BasicProperties(correlation_id=properties.correlation_id),
        )
        channel.basic_ack(method.delivery_tag)

    answering.basic_consume(QUEUE, answer)
    replies = []
    asking.basic_consume(
        REPLY_TO,
        lambda ch, method, properties, body: replies.append((properties.correlation_id, body)),
        auto_ack=True,
    )
    for i in range(REQUESTS):
        asking.basic_publish(
            "", QUEUE, b"%d" % i, pika.BasicProperties(reply_to=REPLY_TO, correlation_id=str(i))
        )
        for _ in range(200):
            if len(replies) > i:
                break
            responder.process_data_events(time_limit=0.05)
            requester.process_data_events(time_limit=0.05)
    want = [(str(i), b"answer to %d" % i) for i in range(REQUESTS)]
    if replies != want:
        print("not ok replies", replies, flush=True)
        sys.exit(1)
    print("ok %d replies" % len(replies), flush=True)
    asking.queue_delete(QUEUE)
    requester.close()
    responder.close()
    print("done", flush=True)


main(sys.argv[1], sys.argv[2])
