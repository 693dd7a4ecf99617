"""A worker that retries failed jobs after a second, three times, and then parks them: Warren's gRPC API from Python.

    apt-get install python3-grpcio protobuf-compiler protobuf-compiler-grpc
    mkdir -p out
    protoc -I api --python_out=out --grpc_out=out --plugin=protoc-gen-grpc=$(which grpc_python_plugin) api/warren/v1/*.proto
    PYTHONPATH=out python3 api/examples/retry.py localhost:5680 guest guest

The jobs' queue dead-letters into a queue where messages wait a second, and that one back into the jobs' queue. The worker looks at the death
history to see how often it has tried.
"""

import base64
import os
import queue
import sys

import grpc

from warren.v1 import consume_pb2 as consume
from warren.v1 import consume_pb2_grpc
from warren.v1 import message_pb2 as message
from warren.v1 import publish_pb2 as publish
from warren.v1 import publish_pb2_grpc
from warren.v1 import topology_pb2 as topology
from warren.v1 import topology_pb2_grpc

TRIES = 3
JOBS, WAIT, PARKED = ("example%d.%s" % (os.getpid(), name) for name in ("jobs", "wait", "parked"))


def text(value):
    return message.Value(string_value=value)


def number(value):
    return message.Value(int64_value=value)


def declare(stub, login, name, **arguments):
    table = message.Table(fields={"x-" + key.replace("_", "-"): value for key, value in arguments.items()})
    stub.DeclareQueue(
        topology.DeclareQueueRequest(queue=topology.QueueDeclaration(name=name, durable=True, arguments=table)),
        metadata=login,
        timeout=10,
    )


class Stream:
    """The client's side of a stream: an iterator that waits for what send is given."""

    def __init__(self):
        self.requests = queue.SimpleQueue()

    def __iter__(self):
        return iter(self.requests.get, None)

    def send(self, request):
        self.requests.put(request)

    def close(self):
        self.requests.put(None)


def publish_jobs(channel, login, bodies):
    """Publishes a message for each body and returns when all of them are confirmed."""
    stream = Stream()
    stream.send(publish.PublishStreamRequest(open=publish.PublishOpen(), publications=[
        publish.Publication(
            mandatory=True,
            message=message.Message(routing_key=JOBS, body=body, properties=message.Properties(delivery_mode=2, message_id=body.decode())),
        )
        for body in bodies
    ]))
    missing = set(range(1, len(bodies) + 1))
    for response in publish_pb2_grpc.PublishServiceStub(channel).PublishStream(iter(stream), metadata=login, timeout=30):
        for result in response.results:
            if result.outcome != publish.PUBLISH_OUTCOME_CONFIRMED:
                sys.exit("not confirmed: %s" % result)
            missing -= set(range(result.first, result.last + 1))
        if not missing:
            stream.close()


def work(channel, login, jobs):
    """Tries jobs until each is done or parked, and returns how often each was tried."""
    tries = {}
    publisher = publish_pb2_grpc.PublishServiceStub(channel)
    stream = Stream()
    stream.send(consume.ConsumeRequest(open=consume.ConsumeOpen(queue=JOBS), credit=10))
    left = jobs
    for response in consume_pb2_grpc.ConsumeServiceStub(channel).Consume(iter(stream), metadata=login, timeout=60):
        for delivery in response.deliveries:
            body = delivery.message.body
            failures = sum(death.count for death in delivery.deaths if death.queue == JOBS and death.reason == "rejected")
            tries[body.decode()] = failures + 1
            settle = consume.SETTLE_KIND_ACK
            if b"never" in body and failures + 1 == TRIES:
                parked = message.Message()
                parked.CopyFrom(delivery.message)
                parked.exchange, parked.routing_key = "", PARKED
                publisher.Publish(publish.PublishRequest(publication=publish.Publication(message=parked, mandatory=True)), metadata=login, timeout=10)
            elif b"never" in body or b"second" in body and failures == 0:
                settle = consume.SETTLE_KIND_REJECT  # tried again in a second
            if settle == consume.SETTLE_KIND_ACK:
                left -= 1
            stream.send(consume.ConsumeRequest(credit=1, settlements=[consume.Settlement(first=delivery.number, kind=settle)]))
        if left == 0:
            stream.close()
    return tries


def main(address, user, password):
    login = (("authorization", "Basic " + base64.b64encode(("%s:%s" % (user, password)).encode()).decode()),)
    with grpc.insecure_channel(address) as channel:
        stub = topology_pb2_grpc.TopologyServiceStub(channel)
        declare(stub, login, JOBS, queue_type=text("quorum"), dead_letter_exchange=text(""), dead_letter_routing_key=text(WAIT))
        declare(stub, login, WAIT, message_ttl=number(1000), dead_letter_exchange=text(""), dead_letter_routing_key=text(JOBS))
        declare(stub, login, PARKED)
        publish_jobs(channel, login, [b"at once", b"the second time", b"never"])
        for job, n in sorted(work(channel, login, 3).items()):
            print("%s: tried %d times" % (job, n))
        parked = consume_pb2_grpc.ConsumeServiceStub(channel).Get(consume.GetRequest(queue=PARKED), metadata=login, timeout=10)
        print("parked: %s" % [delivery.message.body.decode() for delivery in parked.deliveries])
        for name in (JOBS, WAIT, PARKED):
            stub.DeleteQueue(topology.DeleteQueueRequest(queue=name), metadata=login, timeout=10)


if __name__ == "__main__":
    main(*sys.argv[1:])
