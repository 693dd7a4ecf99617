"""Checks an AMQP broker through py-amqp, as an application would use it.

Usage: check_pyamqp.py URL [URL-AFTER]

Prints a line for each promise that holds and ends with exit code 1 at the
first that does not. With a second URL it then waits for a line on standard
input (the caller kills the first node) and goes on over there.
"""

import datetime
import os
import socket
import sys
import time
from urllib.parse import urlparse

import amqp
from amqp.exceptions import AMQPError, MessageNacked

RUN = "pyamqp.%d" % os.getpid()


def ok(what):
    print("ok", what, flush=True)


def expect(condition, what, *seen):
    if not condition:
        print("not ok", what, *seen, flush=True)
        sys.exit(1)


def name(label):
    return RUN + "." + label


def connect(url, **changes):
    u = urlparse(url)
    options = dict(host=u.netloc.split("@")[-1], userid="guest", password="guest", virtual_host="/",
                   confirm_publish=True, connect_timeout=15, read_timeout=30, heartbeat=20)
    options.update(changes)
    connection = amqp.Connection(**options)
    connection.connect()
    return connection


def message(body, **properties):
    return amqp.Message(body, delivery_mode=2, **properties)


def get(channel, queue):
    for _ in range(500):
        m = channel.basic_get(queue)
        if m is not None:
            return m
        time.sleep(0.02)
    expect(False, "a message in " + queue)


def refused(url, code, text, use, **changes):
    """Checks that use(channel) is refused with this code and text."""
    connection = connect(url, **changes)
    try:
        use(connection.channel())
        connection.drain_events(timeout=10)
        expect(False, "refused with %d %s" % (code, text))
    except AMQPError as e:
        expect(e.reply_code == code and text in str(e), "refused with %d %s" % (code, text), repr(e))
    except socket.timeout:
        expect(False, "refused with %d %s" % (code, text))
    try:
        connection.close()
    except (AMQPError, OSError):
        pass  # it was closed from the other side


def publishing(connection):
    channel = connection.channel()
    q = name("publish")
    channel.queue_declare(q, durable=True, auto_delete=False)
    for i in range(50):
        channel.basic_publish(message("m%d" % i), routing_key=q)
    expect(channel.queue_declare(q, passive=True).message_count == 50, "50 messages are there")
    ok("confirms")

    full = name("full")
    channel.queue_declare(full, durable=True, auto_delete=False, arguments={"x-max-length": 1, "x-overflow": "reject-publish"})
    channel.basic_publish(message("1"), routing_key=full)
    try:
        channel.basic_publish(message("2"), routing_key=full)
        expect(False, "a full queue refuses")
    except MessageNacked:
        ok("refusals of a full queue")

    seen = []
    channel.basic_qos(0, 10, False)
    tag = channel.basic_consume(q, callback=seen.append)
    while len(seen) < 50:
        connection.drain_events(timeout=20)
        if len(seen) == 10 and not seen[0].delivery_info["redelivered"]:
            waiting = channel.queue_declare(q, passive=True).message_count
            expect(waiting == 40, "the prefetch holds back 40", waiting)
        if seen and len(seen) % 10 == 0:
            channel.basic_ack(seen[-1].delivery_tag, multiple=True)
    expect([m.body for m in seen] == ["m%d" % i for i in range(50)], "messages come in order")
    ok("consuming with prefetch")
    channel.basic_cancel(tag)
    for each in (q, full):
        channel.queue_delete(each)
    channel.close()


def dead_lettering(connection):
    channel = connection.channel()
    dlx, q, dead = name("dlx"), name("source"), name("dead")
    channel.exchange_declare(dlx, "fanout", durable=True, auto_delete=False)
    channel.queue_declare(dead, durable=True, auto_delete=False)
    channel.queue_declare(q, durable=True, auto_delete=False, arguments={"x-dead-letter-exchange": dlx})
    channel.queue_bind(dead, dlx)
    channel.basic_publish(message("bad", message_id="1", application_headers={"mine": "yes"}), routing_key=q)
    channel.basic_reject(get(channel, q).delivery_tag, requeue=False)
    letter = get(channel, dead)
    death = letter.headers["x-death"][0]
    died = death.pop("time").replace(tzinfo=datetime.timezone.utc).timestamp()
    expect(abs(died - time.time()) < 60, "time of the death", died)
    expect(death == {"count": 1, "reason": "rejected", "queue": q, "exchange": "", "routing-keys": [q]}, "x-death", death)
    expect((letter.body, letter.properties["message_id"], letter.headers["mine"]) == ("bad", "1", "yes"), "the dead letter is the message")
    channel.basic_ack(letter.delivery_tag)
    for queue in (q, dead):
        channel.queue_delete(queue)
    channel.exchange_delete(dlx)
    channel.close()
    ok("dead letters and x-death")


def errors(connection, url):
    none, q, own = name("none"), name("args"), name("own")
    refused(url, 404, "NOT_FOUND - no queue '%s' in vhost '/'" % none, lambda c: c.queue_declare(none, passive=True))
    refused(url, 404, "NOT_FOUND - no exchange '%s' in vhost '/'" % none, lambda c: c.basic_publish(message("m"), exchange=none))
    refused(url, 403, "ACCESS_REFUSED", lambda c: c.exchange_delete("amq.direct"))
    refused(url, 406, "PRECONDITION_FAILED - unknown delivery tag 99", lambda c: c.basic_ack(99))
    channel = connection.channel()
    channel.queue_declare(q, durable=True, auto_delete=False, arguments={"x-max-length": 10})
    refused(url, 406, "PRECONDITION_FAILED - inequivalent arg 'x-max-length'",
            lambda c: c.queue_declare(q, durable=True, auto_delete=False, arguments={"x-max-length": 11}))
    channel.queue_declare(own, exclusive=True)
    refused(url, 405, "RESOURCE_LOCKED", lambda c: c.queue_declare(own, passive=True))

    def twice(c):
        for _ in range(2):
            c.basic_consume(q, consumer_tag="one")
    refused(url, 530, "NOT_ALLOWED", twice)
    channel.queue_delete(q)
    channel.close()
    ok("channel errors")

    for changes, code, text in (({"password": "wrong"}, 403, "ACCESS_REFUSED - Login was refused using authentication mechanism"),
                                ({"virtual_host": "nowhere"}, 530, "vhost nowhere not found")):
        try:
            connect(url, **changes)
            expect(False, "%d at connection" % code)
        except AMQPError as e:
            expect(e.reply_code == code and text in str(e), "%d at connection" % code, repr(e))
    ok("connection errors")


def survive(connection, url, after):
    channel = connection.channel()
    q = name("survive")
    channel.queue_declare(q, durable=True, auto_delete=False)
    for i in range(20):
        channel.basic_publish(message(str(i)), routing_key=q)
    for _ in range(5):
        get(channel, q)
    print("kill", url, flush=True)
    sys.stdin.readline()
    try:
        channel.basic_publish(message("lost"), routing_key=q)
        expect(False, "the connection is gone")
    except (AMQPError, OSError):
        pass
    connection = connect(after)
    channel = connection.channel()
    seen = set()

    def take(m):
        expect(int(m.body) >= 5 or m.delivery_info["redelivered"], "held messages are marked", m.body)
        seen.add(int(m.body))
        channel.basic_ack(m.delivery_tag)
    tag = channel.basic_consume(q, callback=take)
    while len(seen) < 20:
        connection.drain_events(timeout=30)
    expect(seen == set(range(20)), "all messages are there", seen)
    channel.basic_cancel(tag)
    channel.queue_delete(q)
    connection.close()
    ok("the death of a node")


def main():
    url = sys.argv[1]
    connection = connect(url)
    publishing(connection)
    dead_lettering(connection)
    errors(connection, url)
    if len(sys.argv) > 2:
        survive(connection, url, sys.argv[2])
    else:
        connection.close()
    print("done", flush=True)


if __name__ == "__main__":
    main()
