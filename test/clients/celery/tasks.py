"""The Celery application that check_celery.py runs: what the documentation shows."""

import os
import time

from celery import Celery
from kombu import Exchange, Queue

app = Celery("tasks", broker=os.environ["WARREN_BROKER"], backend="rpc://")
# Two queues: "celery" as Celery declares it by itself, and one of type quorum.
app.conf.task_queues = [
    Queue("celery-" + os.environ["WARREN_RUN"], Exchange("celery-" + os.environ["WARREN_RUN"]), routing_key="celery"),
    Queue("quorum-" + os.environ["WARREN_RUN"], Exchange("quorum-" + os.environ["WARREN_RUN"]), routing_key="quorum",
          queue_arguments={"x-queue-type": "quorum"}),
]
app.conf.task_default_queue = "celery-" + os.environ["WARREN_RUN"]
app.conf.task_default_exchange = app.conf.task_default_queue
app.conf.task_default_routing_key = "celery"


@app.task
def add(x, y):
    return x + y


@app.task(bind=True, max_retries=3)
def flaky(self, path):
    """Fails twice, then tells how often it was retried."""
    with open(path, "a") as f:
        f.write("%f\n" % time.time())
    if self.request.retries < 2:
        raise self.retry(countdown=1)
    return self.request.retries


@app.task(acks_late=True, reject_on_worker_lost=True)
def slow(path, seconds):
    """Writes a line when it begins and one when it ends."""
    with open(path, "a") as f:
        f.write("begin %d\n" % os.getppid())
    time.sleep(seconds)
    with open(path, "a") as f:
        f.write("end %d\n" % os.getppid())
    return "slept"
