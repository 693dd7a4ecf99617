"""RabbitMQ's six tutorials in the shape in which people copy them, through pika.

Usage: tutorials.py URL

Prints a line for each tutorial that works and ends with exit code 1 at the
first that does not. Names have the process id in front, so that runs do not
meet.
"""

import os
import sys
import threading
import uuid

import pika

URL = sys.argv[1]
RUN = "tutorial.%d." % os.getpid()


def ok(what):
    print("ok", what, flush=True)


def expect(condition, what, *seen):
    if not condition:
        print("not ok", what, *seen, flush=True)
        os._exit(1)


def connect():
    return pika.BlockingConnection(pika.URLParameters(URL))


def consume(channel, queue, count, callback=None, auto_ack=True):
    """Calls start_consuming until count messages came."""
    seen = []

    def on_message(ch, method, properties, body):
        seen.append((method, body))
        if callback:
            callback(ch, method, properties, body)
        if len(seen) == count:
            ch.stop_consuming()
    timer = channel.connection.call_later(30, lambda: expect(False, "messages in time", seen))
    channel.basic_consume(queue=queue, on_message_callback=on_message, auto_ack=auto_ack)
    channel.start_consuming()
    channel.connection.remove_timeout(timer)
    return seen


def hello_world():
    connection = connect()
    channel = connection.channel()
    channel.queue_declare(queue=RUN + "hello")  # neither durable nor exclusive
    channel.basic_publish(exchange="", routing_key=RUN + "hello", body="Hello World!")
    connection.close()

    connection = connect()  # the queue outlives its connection
    channel = connection.channel()
    channel.queue_declare(queue=RUN + "hello")
    (_, body), = consume(channel, RUN + "hello", 1)
    expect(body == b"Hello World!", "hello", body)
    channel.queue_delete(RUN + "hello")
    connection.close()
    ok("1 hello world")


def work_queues():
    queue = RUN + "task_queue"
    workers = [connect() for _ in range(2)]
    channels = [w.channel() for w in workers]
    taken = [[], []]

    def callback(n):
        def on_message(ch, method, properties, body):
            taken[n].append((body, method.redelivered))
            if len(taken[0]) == 1 and n == 0:
                return  # this worker dies before it acknowledges
            ch.basic_ack(delivery_tag=method.delivery_tag)
        return on_message
    for n, ch in enumerate(channels):
        ch.queue_declare(queue=queue, durable=True)
        ch.basic_qos(prefetch_count=1)
        ch.basic_consume(queue=queue, on_message_callback=callback(n))
    connection = connect()
    channel = connection.channel()
    channel.queue_declare(queue=queue, durable=True)
    for i in range(6):
        channel.basic_publish(exchange="", routing_key=queue, body="task %d" % i,
                              properties=pika.BasicProperties(delivery_mode=2))
    while len(taken[0]) < 1 or len(taken[1]) < 5:
        for w in workers:
            w.process_data_events(time_limit=0.05)
    expect(len(taken[0]) == 1, "a busy worker gets no more", taken)
    workers[0].close()
    while len(taken[1]) < 6:
        workers[1].process_data_events(time_limit=0.05)
    expect(taken[1][-1] == (taken[0][0][0], True), "its task goes to the other, marked", taken)
    channel.queue_delete(queue)
    connection.close()
    workers[1].close()
    ok("2 work queues")


def bound(exchange, kind, keys):
    """A consumer's connection with an exclusive, server-named queue."""
    connection = connect()
    channel = connection.channel()
    channel.exchange_declare(exchange=exchange, exchange_type=kind)
    result = channel.queue_declare(queue="", exclusive=True)
    queue = result.method.queue
    expect(queue.startswith("amq.gen-"), "a server-named queue", queue)
    for key in keys:
        channel.queue_bind(exchange=exchange, queue=queue, routing_key=key)
    return channel, queue


def routed(title, exchange, kind, consumers, messages):
    """consumers: the keys of each; messages: key and who gets it."""
    exchange = RUN + exchange
    ends = [bound(exchange, kind, keys) for keys in consumers]
    connection = connect()
    channel = connection.channel()
    channel.exchange_declare(exchange=exchange, exchange_type=kind)
    for key, _ in messages:
        channel.basic_publish(exchange=exchange, routing_key=key, body="message " + key)
    for n, (ch, queue) in enumerate(ends):
        want = ["message " + key for key, who in messages if n in who]
        got = [body.decode() for _, body in consume(ch, queue, len(want))]
        expect(got == want, title, n, got, want)
        expect(ch.queue_declare(queue, passive=True).method.message_count == 0, "no more", n)
        ch.connection.close()
    gone = connect().channel()
    try:
        gone.queue_declare(ends[0][1], passive=True)
        expect(False, "exclusive queues go with their connection")
    except pika.exceptions.ChannelClosedByBroker as e:
        expect(e.reply_code == 404, "exclusive queues go with their connection", e)
    channel.exchange_delete(exchange)
    connection.close()
    ok(title)


class FibonacciClient:
    def __init__(self, direct):
        self.connection = connect()
        self.channel = self.connection.channel()
        self.queue = "amq.rabbitmq.reply-to"
        if not direct:
            self.queue = self.channel.queue_declare(queue="", exclusive=True).method.queue
        self.channel.basic_consume(queue=self.queue, on_message_callback=self.on_response, auto_ack=True)

    def on_response(self, ch, method, props, body):
        if self.corr_id == props.correlation_id:
            self.response = body

    def call(self, n):
        self.response = None
        self.corr_id = str(uuid.uuid4())
        self.channel.basic_publish(
            exchange="", routing_key=RUN + "rpc_queue",
            properties=pika.BasicProperties(reply_to=self.queue, correlation_id=self.corr_id), body=str(n))
        for _ in range(300):
            self.connection.process_data_events(time_limit=0.1)
            if self.response is not None:
                return int(self.response)
        expect(False, "a response")


def fib(n):
    return n if n < 2 else fib(n - 1) + fib(n - 2)


def rpc():
    connection = connect()
    channel = connection.channel()
    channel.queue_declare(queue=RUN + "rpc_queue")

    def on_request(ch, method, props, body):
        ch.basic_publish(exchange="", routing_key=props.reply_to,
                         properties=pika.BasicProperties(correlation_id=props.correlation_id), body=str(fib(int(body))))
        ch.basic_ack(delivery_tag=method.delivery_tag)
    channel.basic_qos(prefetch_count=1)
    channel.basic_consume(queue=RUN + "rpc_queue", on_message_callback=on_request)
    server = threading.Thread(target=channel.start_consuming, daemon=True)
    server.start()
    for direct in (False, True):
        client = FibonacciClient(direct)
        expect([client.call(n) for n in (1, 8, 15)] == [1, 21, 610], "fibonacci")
        client.connection.close()
    connection.add_callback_threadsafe(channel.stop_consuming)
    server.join(10)
    channel.queue_delete(RUN + "rpc_queue")
    connection.close()
    ok("6 RPC, with a queue of its own and with direct reply-to")


def main():
    hello_world()
    work_queues()
    routed("3 publish/subscribe", "logs", "fanout", [[""], [""]], [("", {0, 1}), ("ignored", {0, 1})])
    routed("4 routing", "direct_logs", "direct", [["error"], ["info", "warning", "error"]],
           [("info", {1}), ("error", {0, 1}), ("warning", {1}), ("debug", set())])
    routed("5 topics", "topic_logs", "topic", [["#"], ["kern.*"], ["*.critical", "kern.*"]],
           [("kern.critical", {0, 1, 2}), ("app.info", {0}), ("app.critical", {0, 2}), ("kern.disk.full", {0})])
    rpc()
    print("done", flush=True)
    os._exit(0)  # some connections are left to die with the process


if __name__ == "__main__":
    main()
