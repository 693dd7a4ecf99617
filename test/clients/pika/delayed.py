"""Declares Celery's native delayed delivery through pika and sends through it.

Usage: delayed.py URL

The topology is that of kombu 5.5 and later: 28 wait queues, one for each binary
digit of the delay in seconds. Level n keeps a message for 2^n s when its digit is
1 and hands it to the next lower level otherwise; below level 0 is the exchange
celery_delayed_delivery. Prints a line for each promise that holds and ends with
exit code 1 at the first that does not.
"""

import os
import sys
import time

import pika

LEVELS = 28
RUN = "delayed.%d" % os.getpid()
DELIVERY = "celery_delayed_delivery"


def ok(what):
    print("ok", what, flush=True)


def expect(condition, what, *seen):
    if not condition:
        print("not ok", what, *seen, flush=True)
        sys.exit(1)


def level(n):
    return "celery_delayed_%d" % n if n >= 0 else DELIVERY


def pattern(digit, n):
    """Matches keys whose digit for level n, counted from the left, is digit."""
    return "*." * (LEVELS - 1 - n) + digit + ".#"


def declare(channel):
    for n in range(-1, LEVELS):
        channel.exchange_declare(level(n), "topic", durable=True)
    for n in range(LEVELS):
        channel.queue_declare(level(n), durable=True, arguments={
            "x-queue-type": "quorum", "x-dead-letter-strategy": "at-least-once", "x-overflow": "reject-publish",
            "x-message-ttl": 2**n * 1000, "x-dead-letter-exchange": level(n - 1)})
        channel.queue_bind(level(n), level(n), pattern("1", n))
        channel.exchange_bind(level(n - 1), level(n), pattern("0", n))


def key(seconds, rest):
    return ".".join(format(seconds, "0%db" % LEVELS)) + "." + rest


def main():
    connection = pika.BlockingConnection(pika.URLParameters(sys.argv[1]))
    channel = connection.channel()
    declare(channel)
    ok("28 levels")
    declare(channel)
    ok("28 levels again: workers do it at each start")

    # What celery does for a queue of its own.
    channel.exchange_declare(RUN, "topic", durable=True)
    channel.queue_declare(RUN, durable=True, arguments={"x-queue-type": "quorum"})
    rest = "r" * 199  # with 28 digits and dots the longest key there can be
    channel.exchange_bind(RUN, DELIVERY, "#." + rest)
    channel.queue_bind(RUN, RUN, "#." + rest)
    channel.confirm_delivery()
    sent = {}
    for seconds in (5, 3, 2, 1, 4, 1):
        body = b"%d.%d" % (seconds, len(sent))
        sent[body] = (seconds, time.time())
        channel.basic_publish(level(LEVELS - 1), key(seconds, rest), body, pika.BasicProperties(delivery_mode=2), mandatory=True)
    expect(len(key(5, rest)) == 255, "the key has 255 bytes")
    ok("confirmed")

    took = {}
    for method, properties, body in channel.consume(RUN, inactivity_timeout=20):
        expect(method is not None, "all messages come", sorted(took))
        seconds, begun = sent.pop(body)
        late = time.time() - begun - seconds
        expect(-0.01 < late < 20, "a delay is kept", body, late)
        deaths = [d["queue"] for d in properties.headers["x-death"]]
        want = [level(n) for n in range(LEVELS) if seconds >> n & 1]  # newest first: lowest level first
        expect(deaths == want, "x-death names the levels", deaths)
        expect(all(d["reason"] == "expired" for d in properties.headers["x-death"]), "expired", properties.headers)
        last = (seconds & -seconds).bit_length() - 1  # the level it died in last
        expect((method.exchange, method.routing_key) == (level(last - 1), key(seconds, rest)), "exchange and key", method)
        took[body] = late
        channel.basic_ack(method.delivery_tag)
        if not sent:
            break
    channel.cancel()
    ok("delays are kept, at most %.1f s late" % max(took.values()))
    for n in range(LEVELS):
        expect(channel.queue_declare(level(n), passive=True).method.message_count == 0, "empty", n)
        channel.queue_delete(level(n))
    for n in range(-1, LEVELS):
        channel.exchange_delete(level(n))
    channel.queue_delete(RUN)
    channel.exchange_delete(RUN)
    connection.close()
    print("done", flush=True)


if __name__ == "__main__":
    main()
