"""Checks an AMQP broker through kombu, as an application would use it.

Usage: check_kombu.py URL [URL-AFTER]

Prints a line for each promise that holds and ends with exit code 1 at the
first that does not. With a second URL it waits for a line on standard input
(the caller kills the first node) while kombu itself goes over to the other.
"""

import os
import socket
import sys
import threading

from amqp.exceptions import AccessRefused, NotFound, PreconditionFailed, ResourceLocked
from kombu import Connection, Consumer, Exchange, Producer, Queue
from kombu.mixins import ConsumerMixin

RUN = "kombu.%d" % os.getpid()


def ok(what):
    print("ok", what, flush=True)


def expect(condition, what, *seen):
    if not condition:
        print("not ok", what, *seen, flush=True)
        os._exit(1)


def name(label):
    return RUN + "." + label


def connect(url):
    return Connection(url, transport_options={"confirm_publish": True}, connect_timeout=15, heartbeat=20)


def collect(connection, queue, count, prefetch=0, accept=lambda m: m.ack()):
    """Takes count messages of queue through a Consumer."""
    seen = []

    def take(body, m):
        seen.append((body, m))
        accept(m)
    with connection.channel() as channel:
        with Consumer(channel, queue, callbacks=[take], prefetch_count=prefetch, accept=["json"]):
            while len(seen) < count:
                connection.drain_events(timeout=20)
    return seen


def work(connection):
    exchange = Exchange(name("work"), "topic", durable=True)
    dlx = Exchange(name("dlx"), "direct", durable=True)
    dead = Queue(name("dead"), dlx, routing_key="failed", durable=True)
    queue = Queue(name("work"), exchange, routing_key="order.#", durable=True, queue_arguments={
        "x-dead-letter-exchange": dlx.name, "x-dead-letter-routing-key": "failed"})
    producer = Producer(connection, exchange=exchange)
    for i in range(50):
        producer.publish({"n": i}, routing_key="order.new", declare=[dead, queue], retry=True, headers={"mine": "yes"})
    ok("declare and confirm")
    held = []
    # Closing the channel returns what has come in the meantime.
    with connection.channel() as channel:
        with Consumer(channel, queue, callbacks=[lambda body, m: held.append(m)], prefetch_count=10, accept=["json"]):
            try:
                while True:
                    connection.drain_events(timeout=1)
            except socket.timeout:
                pass
            expect(len(held) == 10, "the prefetch is kept", len(held))
            held[0].reject()
            for m in held[1:]:
                m.requeue()
    seen = collect(connection, queue, 49, prefetch=10)
    expect(sorted(body["n"] for body, _ in seen) == list(range(1, 50)), "all messages", [body for body, _ in seen])
    ok("consuming with prefetch, reject and requeue")
    (body, m), = collect(connection, dead, 1)
    death = m.headers["x-death"][0]
    expect((body, death["reason"], death["queue"], death["count"], m.headers["mine"]) == ({"n": 0}, "rejected", queue.name, 1, "yes"), "x-death", m.headers)
    ok("dead letters and x-death")

    with connection.SimpleQueue(name("simple")) as simple:
        simple.put({"hello": "world"})
        m = simple.get(timeout=20)
        expect(m.payload == {"hello": "world"}, "a simple queue", m.payload)
        m.ack()
    Queue(name("simple"))(connection.channel()).delete()
    ok("a simple queue")
    channel = connection.channel()
    for each in (queue, dead):
        each(channel).delete()
    for each in (exchange, dlx):
        each(channel).delete()


def errors(connection, url):
    for what, error, use in (
        ("404", NotFound, lambda c: Queue(name("none"))(c).queue_declare(passive=True)),
        ("403", AccessRefused, lambda c: Exchange("amq.direct", "direct")(c).delete()),
    ):
        try:
            use(connection.channel())
            expect(False, what)
        except error:
            pass
    with connect(url) as other:
        mine = Queue(name("mine"), exclusive=True, durable=False)
        mine(other.channel()).declare()
        try:
            Queue(mine.name)(connection.channel()).queue_declare(passive=True)
            expect(False, "405")
        except ResourceLocked as e:
            expect("cannot obtain exclusive access to locked queue" in str(e), "405", e)
    q = Queue(name("args"), durable=True, max_length=10)
    q(connection.channel()).declare()
    try:
        Queue(q.name, durable=True, max_length=11)(connection.channel()).queue_declare()
        expect(False, "406")
    except PreconditionFailed as e:
        expect("inequivalent arg 'x-max-length'" in str(e), "406", e)
    q(connection.channel()).delete()
    for bad, error, text in ((url.replace("guest:guest", "guest:wrong"), AccessRefused, "Login was refused"),
                             (url.rstrip("/") + "/nowhere", Exception, "vhost nowhere not found")):
        try:
            with connect(bad) as c:
                c.connect()
            expect(False, text)
        except error as e:
            expect(text in str(e), text, repr(e))
    ok("errors")


class Worker(ConsumerMixin):
    """What kombu's documentation shows: it reconnects by itself."""

    def __init__(self, connection, queue):
        self.connection, self.queue = connection, queue
        self.seen, self.first = set(), threading.Event()

    def get_consumers(self, Consumer, channel):
        return [Consumer([self.queue], callbacks=[self.on_message], accept=["json"], prefetch_count=5)]

    def on_message(self, body, m):
        self.seen.add(body["n"])
        self.first.set()
        m.ack()
        if len(self.seen) == 40:
            self.should_stop = True


def survive(url, after):
    both = "%s;%s" % (url, after)
    queue = Queue(name("survive"), Exchange(name("survive"), "direct", durable=True), routing_key="k", durable=True)
    connection = connect(both)
    producer = Producer(connection, exchange=queue.exchange, routing_key="k")

    def publish(numbers):
        for n in numbers:
            producer.publish({"n": n}, declare=[queue], retry=True, retry_policy={"max_retries": 50, "interval_step": 0.1, "interval_max": 0.5})
    publish(range(20))
    worker = Worker(connect(both), queue)
    thread = threading.Thread(target=worker.run, daemon=True)
    thread.start()
    expect(worker.first.wait(20), "the worker works")
    print("kill", url, flush=True)
    sys.stdin.readline()
    publish(range(20, 40))
    thread.join(60)
    expect(worker.seen == set(range(40)), "all messages are taken", sorted(worker.seen))
    expect(connection.as_uri().rstrip("/") != "", "the connection is there")
    queue(connection.channel()).delete()
    queue.exchange(connection.channel()).delete()
    ok("the death of a node")


def main():
    url = sys.argv[1]
    with connect(url) as connection:
        work(connection)
        errors(connection, url)
    if len(sys.argv) > 2:
        survive(url, sys.argv[2])
    print("done", flush=True)


if __name__ == "__main__":
    main()
