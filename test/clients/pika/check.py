"""Checks an AMQP broker through pika, as an application would use it.

Usage: check.py URL [URL-AFTER]

Prints a line for each promise that holds and ends with exit code 1 at the
first that does not. With a second URL it then waits for a line on standard
input (the caller kills the first node) and goes on over there.
"""

import os
import sys
import time

import pika
from pika.exceptions import (
    ChannelClosedByBroker,
    ConnectionClosedByBroker,
    ProbableAccessDeniedError,
    ProbableAuthenticationError,
    AMQPConnectionError,
    AMQPError,
    NackError,
    UnroutableError,
)

PERSISTENT = pika.BasicProperties(delivery_mode=2)
RUN = "pika.%d" % os.getpid()


def ok(what):
    print("ok", what, flush=True)


def expect(condition, what, *seen):
    if not condition:
        print("not ok", what, *seen, flush=True)
        sys.exit(1)


def connect(url, **changes):
    parameters = pika.URLParameters(url)
    parameters.socket_timeout = 10
    parameters.blocked_connection_timeout = 20
    for name, value in changes.items():
        setattr(parameters, name, value)
    return pika.BlockingConnection(parameters)


def name(label):
    return RUN + "." + label


def refused(connection, code, text, use):
    """Checks that use(channel) closes its channel with this code and text."""
    channel = connection.channel()
    try:
        use(channel)
        connection.process_data_events(time_limit=5)
        channel.queue_declare(name("any"), passive=True)
    except ChannelClosedByBroker as e:
        expect(e.reply_code == code and text in e.reply_text, "refused with %d %s" % (code, text), e)
        return
    expect(False, "refused with %d %s" % (code, text))


def publishing(connection):
    channel = connection.channel()
    channel.confirm_delivery()
    q = name("publish")
    channel.queue_declare(q, durable=True)
    for i in range(50):
        channel.basic_publish("", q, b"m%d" % i, PERSISTENT, mandatory=True)
    expect(channel.queue_declare(q, passive=True).method.message_count == 50, "50 messages are there")
    try:
        channel.basic_publish("", name("none"), b"back", PERSISTENT, mandatory=True)
        expect(False, "an unroutable message comes back")
    except UnroutableError as e:
        m = e.messages[0]
        expect(m.method.reply_code == 312 and m.body == b"back", "an unroutable message comes back", m)
    channel.basic_publish("", name("none"), b"gone", PERSISTENT)
    ok("confirms and returns")

    full = name("full")
    channel.queue_declare(full, durable=True, arguments={"x-max-length": 1, "x-overflow": "reject-publish"})
    channel.basic_publish("", full, b"1", PERSISTENT)
    try:
        channel.basic_publish("", full, b"2", PERSISTENT)
        expect(False, "a full queue refuses")
    except NackError:
        ok("refusals of a full queue")

    channel.basic_qos(prefetch_count=10)
    seen = []
    for method, _, body in channel.consume(q, inactivity_timeout=10):
        expect(method is not None, "all messages are delivered", seen)
        seen.append(body)
        expect(not method.redelivered, "first deliveries are not marked")
        if len(seen) == 10:
            waiting = connection.channel().queue_declare(q, passive=True).method.message_count
            expect(waiting == 40, "the prefetch holds back 40", waiting)
        if len(seen) % 10 == 0:
            channel.basic_ack(method.delivery_tag, multiple=True)
        if len(seen) == 50:
            break
    channel.cancel()
    expect(seen == [b"m%d" % i for i in range(50)], "messages come in order", seen)
    ok("consuming with prefetch")
    for each in (q, full):
        channel.queue_delete(each)
    channel.close()


def settling(connection):
    channel = connection.channel()
    q = name("settle")
    channel.queue_declare(q, durable=True)
    for body in (b"1", b"2", b"3", b"4"):
        channel.basic_publish("", q, body, PERSISTENT)
    got = [get(channel, q) for _ in range(4)]
    channel.basic_nack(got[2][0].delivery_tag, multiple=True, requeue=True)
    channel.basic_reject(got[3][0].delivery_tag, requeue=True)
    again = [get(channel, q) for _ in range(4)]
    expect([b for _, _, b in again] == [b"1", b"2", b"3", b"4"], "requeued to the original place", again)
    expect(all(m.redelivered for m, _, _ in again), "redelivered is set")
    channel.close()
    channel = connection.channel()
    expect(get(channel, q)[2] == b"1", "a closed channel returns what it held")
    channel.queue_delete(q)
    channel.close()
    ok("acks, requeue and order")


def get(channel, queue):
    for _ in range(500):
        method, properties, body = channel.basic_get(queue)
        if method is not None:
            return method, properties, body
        time.sleep(0.02)
    expect(False, "a message in " + queue)


def dead_lettering(connection):
    channel = connection.channel()
    work, dlx, q, dead = name("work"), name("dlx"), name("source"), name("dead")
    channel.exchange_declare(work, "topic", durable=True)
    channel.exchange_declare(dlx, "direct", durable=True)
    channel.queue_declare(dead, durable=True)
    channel.queue_declare(q, durable=True, arguments={"x-dead-letter-exchange": dlx, "x-dead-letter-routing-key": "failed"})
    channel.queue_bind(dead, dlx, "failed")
    channel.queue_bind(q, work, "order.#")
    channel.basic_publish(work, "order.new", b"bad", pika.BasicProperties(delivery_mode=2, message_id="1", headers={"mine": "yes"}))
    channel.basic_reject(get(channel, q)[0].delivery_tag, requeue=False)
    method, properties, body = get(channel, dead)
    death = properties.headers["x-death"][0]
    when = death.pop("time")
    expect(abs((when - datetime_now()).total_seconds()) < 60, "time of the death", when)
    expect(
        death == {"count": 1, "reason": "rejected", "queue": q, "exchange": work, "routing-keys": ["order.new"]},
        "x-death of a rejected message", death)
    expect(
        (method.exchange, method.routing_key, body, properties.message_id, properties.headers["mine"])
        == (dlx, "failed", b"bad", "1", "yes"), "the dead letter is the message", method, properties)
    for key, value in (("queue", q), ("reason", "rejected"), ("exchange", work)):
        expect(properties.headers["x-first-death-" + key] == value, "x-first-death-" + key, properties.headers)
    channel.basic_ack(method.delivery_tag)

    channel.basic_publish(work, "order.old", b"late", pika.BasicProperties(delivery_mode=2, expiration="100"))
    method, properties, body = get(channel, dead)
    death = properties.headers["x-death"][0]
    expect(
        body == b"late" and properties.expiration is None and death["reason"] == "expired"
        and death["original-expiration"] == "100" and death["routing-keys"] == ["order.old"],
        "x-death of an expired message", properties)
    for queue in (q, dead):
        channel.queue_delete(queue)
    for exchange in (work, dlx):
        channel.exchange_delete(exchange)
    channel.close()
    ok("dead letters and x-death")


def transactions(connection):
    looker = connection.channel()
    a, b = name("tx.a"), name("tx.b")
    count = lambda q: looker.queue_declare(q, passive=True).method.message_count
    for q in (a, b):
        looker.queue_declare(q, durable=True)
    channel = connection.channel()
    channel.tx_select()
    channel.basic_publish("", a, b"job", PERSISTENT)
    expect(count(a) == 0, "nothing shows before the commit")
    channel.tx_commit()
    expect(count(a) == 1, "a commit shows")
    method = channel.basic_get(a)[0]
    channel.basic_publish("", b, b"result", PERSISTENT)
    channel.basic_ack(method.delivery_tag)
    channel.tx_rollback()
    expect(count(a) == 0 and count(b) == 0, "a rollback leaves the message unacked")
    channel.basic_publish("", b, b"result", PERSISTENT)
    channel.basic_ack(method.delivery_tag)
    channel.tx_commit()
    channel.close()
    expect(count(a) == 0 and count(b) == 1, "a commit over two queues")
    for q in (a, b):
        looker.queue_delete(q)
    refused(connection, 406, "channel is not transactional", lambda c: c.tx_commit())
    ok("transactions")


def datetime_now():
    import datetime

    return datetime.datetime.utcnow()


def errors(connection, url):
    refused(connection, 404, "NOT_FOUND - no queue '%s' in vhost '/'" % name("none"),
            lambda c: c.queue_declare(name("none"), passive=True))
    refused(connection, 404, "NOT_FOUND - no exchange '%s' in vhost '/'" % name("none"),
            lambda c: c.basic_publish(name("none"), "k", b"m"))
    refused(connection, 403, "ACCESS_REFUSED", lambda c: c.exchange_delete("amq.direct"))
    refused(connection, 406, "PRECONDITION_FAILED - unknown delivery tag 99", lambda c: c.basic_ack(99))
    q = name("args")
    channel = connection.channel()
    channel.queue_declare(q, durable=True, arguments={"x-max-length": 10})
    refused(connection, 406, "PRECONDITION_FAILED - inequivalent arg 'x-max-length' for queue '%s' in vhost '/'" % q,
            lambda c: c.queue_declare(q, durable=True, arguments={"x-max-length": 11}))
    own = name("own")
    channel.queue_declare(own, exclusive=True)
    other = connect(url)
    refused(other, 405, "RESOURCE_LOCKED - cannot obtain exclusive access to locked queue '%s' in vhost '/'" % own,
            lambda c: c.queue_declare(own, passive=True))
    other.close()
    channel.queue_delete(q)
    channel.close()
    ok("channel errors")

    broken = connect(url)
    channel = broken.channel()
    try:
        channel.basic_qos(prefetch_size=10)
        expect(False, "a prefetch size is refused")
    except ConnectionClosedByBroker as e:
        expect(e.reply_code == 540, "a prefetch size is refused", e)
    try:
        connect(url, credentials=pika.PlainCredentials("guest", "wrong"))
        expect(False, "a wrong password is refused")
    except ProbableAuthenticationError as e:
        expect("ACCESS_REFUSED" in str(e), "a wrong password is refused", e)
    try:
        connect(url, virtual_host="nowhere")
        expect(False, "a missing vhost is refused")
    except ProbableAccessDeniedError as e:
        expect("(530)" in str(e) and "vhost nowhere not found" in str(e), "a missing vhost is refused", e)
    ok("connection errors")


def survive(connection, url, after):
    """Goes on over another node when the first one dies."""
    channel = connection.channel()
    channel.confirm_delivery()
    q = name("survive")
    channel.queue_declare(q, durable=True)
    for i in range(20):
        channel.basic_publish("", q, b"%d" % i, PERSISTENT)
    held = [get(channel, q) for _ in range(5)]
    expect(held[0][2] == b"0", "the first message is held")
    print("kill", url, flush=True)
    sys.stdin.readline()
    try:
        channel.basic_publish("", q, b"lost", PERSISTENT)
        expect(False, "the connection is gone")
    except AMQPError:
        pass
    connection = connect(after)
    channel = connection.channel()
    held, fresh = [], []
    for method, _, body in channel.consume(q, inactivity_timeout=20):
        expect(method is not None, "all messages are delivered", held, fresh)
        if body in (b"0", b"1", b"2", b"3", b"4"):
            # They come back when the death of their node is noticed.
            expect(method.redelivered, "held messages are marked", body)
            held.append(body)
        elif body != b"lost":
            fresh.append(body)
        channel.basic_ack(method.delivery_tag)
        if len(held) + len(fresh) == 20:
            break
    expect(held + fresh == [b"%d" % i for i in range(20)], "messages come in order", held, fresh)
    channel.cancel()
    channel.queue_delete(q)
    connection.close()
    ok("the death of a node")


def main():
    url = sys.argv[1]
    connection = connect(url)
    publishing(connection)
    settling(connection)
    dead_lettering(connection)
    transactions(connection)
    errors(connection, url)
    if len(sys.argv) > 2:
        survive(connection, url, sys.argv[2])
    else:
        connection.close()
    print("done", flush=True)


if __name__ == "__main__":
    try:
        main()
    except AMQPConnectionError as e:
        print("not ok", repr(e), flush=True)
        sys.exit(1)
