"""Runs a Celery application with real workers, on classic and quorum queues.

Usage: check.py URL

Prints a line for each promise that holds and ends with exit code 1 at the
first that does not.
"""

import os
import signal
import subprocess
import sys
import tempfile
import time

HERE = os.path.dirname(os.path.abspath(__file__))
os.environ["WARREN_BROKER"] = sys.argv[1]
os.environ["WARREN_RUN"] = str(os.getpid())
os.environ["C_FORCE_ROOT"] = "1"
sys.path.insert(0, HERE)

from celery import group  # noqa: E402
from tasks import add, app, flaky, slow  # noqa: E402

FOLDER = tempfile.mkdtemp(prefix="warren-celery-")
WORKERS = []


def ok(what):
    print("ok", what, flush=True)


def expect(condition, what, *seen):
    if not condition:
        print("not ok", what, *seen, flush=True)
        for worker in WORKERS:
            stop(worker)
        for log in sorted(os.listdir(FOLDER)):
            print("---", log, open(os.path.join(FOLDER, log)).read()[-4000:], file=sys.stderr)
        sys.exit(1)


def start():
    """Starts a worker with two processes, in a process group of its own."""
    log = open(os.path.join(FOLDER, "worker%d.log" % len(WORKERS)), "w")
    worker = subprocess.Popen(
        ["/usr/bin/python3", "-m", "celery", "-A", "tasks", "worker", "-c", "2", "-l", "info", "-n", "w%d.%d@localhost" % (len(WORKERS), os.getpid())],
        cwd=HERE, stdout=log, stderr=subprocess.STDOUT, start_new_session=True)
    WORKERS.append(worker)
    return worker


def stop(worker):
    try:
        os.killpg(worker.pid, signal.SIGKILL)
    except ProcessLookupError:
        pass
    worker.wait()


def lines(path):
    return open(path).read().split("\n")[:-1] if os.path.exists(path) else []


def wait_for(what, condition, seconds=40):
    end = time.time() + seconds
    while not condition():
        expect(time.time() < end, what)
        time.sleep(0.05)


def results(queue):
    where = {"queue": app.conf.task_default_queue.replace("celery", queue)}
    begun = time.time()
    later = add.apply_async((20, 22), countdown=2, **where)
    retried = flaky.apply_async((os.path.join(FOLDER, "flaky." + queue),), **where)
    many = group(add.s(i, i).set(**where) for i in range(20)).apply_async()
    expect(many.get(timeout=40) == [2 * i for i in range(20)], "results of a group")
    expect(later.get(timeout=40) == 42 and time.time() - begun >= 2, "a countdown is kept", time.time() - begun)
    expect(retried.get(timeout=40) == 2, "a task is retried")
    tries = [float(t) for t in lines(os.path.join(FOLDER, "flaky." + queue))]
    expect(len(tries) == 3 and all(b - a >= 1 for a, b in zip(tries, tries[1:])), "retries wait", tries)
    ok("results, countdown and retries on " + queue)


def killed_in_mid_task(worker):
    """SIGKILL of a worker and its processes: acks_late brings the tasks to another."""
    paths = {queue: os.path.join(FOLDER, "slow." + queue) for queue in ("celery", "quorum")}
    sent = [slow.apply_async((path, 6), queue=app.conf.task_default_queue.replace("celery", queue)) for queue, path in paths.items()]
    wait_for("the tasks begin", lambda: all(len(lines(p)) == 1 for p in paths.values()))
    stop(worker)
    ok("a worker is killed in mid-task")
    start()
    for queue, path in paths.items():
        wait_for("the task on %s runs again" % queue, lambda: len(lines(path)) == 3)
        seen = [line.split()[0] for line in lines(path)]
        expect(seen == ["begin", "begin", "end"], "begun, begun again, ended", seen)
    for each in sent:
        expect(each.get(timeout=40) == "slept", "the result comes")
    ok("its tasks run again on another worker")


def main():
    worker = start()
    for queue in ("celery", "quorum"):
        results(queue)
    killed_in_mid_task(worker)
    # The acks follow the results. A shutdown that comes between them makes Celery forget
    # an ack (its handler raises where the pool reports the result).
    time.sleep(3)
    WORKERS[-1].terminate()  # a warm shutdown: what is done is acknowledged
    WORKERS[-1].wait(40)
    with app.connection() as connection:
        for queue in app.conf.task_queues:
            bound = queue(connection.channel())
            expect(bound.queue_declare(passive=True).message_count == 0, "the queue is empty")
            bound.delete()
            bound.exchange.delete()
    print("done", flush=True)


if __name__ == "__main__":
    main()
