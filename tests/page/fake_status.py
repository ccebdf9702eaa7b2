# SPDX-License-Identifier: Apache-2.0

"""A status port with made-up jobs, which answers as ps 0 would.

    fake_status.py [--port=8000]

serves the status page of each scene at http://localhost:8000/SCENE/, and a list of scenes at /.
The scene and the number of polls determine the answers.
"""

import argparse
import http.server
import json
import math
import os
import random
import threading
import urllib.parse

PAGE = os.path.join(os.path.dirname(__file__), "..", "..", "ps_server", "page", "status.html")
# The time at which the jobs begin; any date will do.
BEGUN = 1767261600.0
MIB = 1 << 20
GIB = 1 << 30

HOSTILE = "<img src=x onerror=\"document.title='owned'\"><script>document.title='owned'</script>&lt;b&gt;"


def wide(value):
    """64-bit integers are strings in protobuf's JSON."""
    return str(int(value))


def task(job, index):
    return {"job": job, "index": index}


class Job:
    """A healthy synchronous job. Scenes change parts of it."""

    def __init__(self, tick, ps=2, workers=4, step=6180, total=20000, step_seconds=0.05, batch=128):
        self.random = random.Random(21)
        self.tick = tick
        # Each poll advances time by a second.
        self.step = min(total, step + int(tick / step_seconds))
        self.total = total
        self.step_seconds = step_seconds
        self.batch = batch
        self.ps = [self.make_ps(i) for i in range(ps)]
        self.workers = [self.make_worker(i, workers) for i in range(workers)]
        self.events = []
        self.phase = "TRAINING"
        seconds = self.step * step_seconds
        self.seconds = seconds
        durable = self.step // 1000 * 1000
        self.history_until = self.step
        self.status = {
            "generation": wide(1),
            "state": {"phase": "TRAINING", "reason": ""},
            "global_step": wide(self.step),
            "total_steps": wide(total),
            "waiting_for": "",
            "examples": wide(self.step * workers * batch),
            "pushes": {"accepted": wide(self.step * workers), "stale": "0", "duplicate": "0",
                       "fenced": "0", "aborted": "0", "not_finite": "0"},
            "train_loss": self.loss(self.step),
            "training_seconds": seconds,
            "tasks": [],
            "replicas_to_aggregate": workers,
            "total_num_replicas": workers,
            "workers": [{"worker": w["task"], "pushes": wide(self.step),
                         "examples": wide(self.step * batch)} for w in self.workers],
            "staleness": [],
            "durable_step": wide(durable),
            "recovered": "",
            "checkpoint_error": "",
            "loss_scale": 1,
            "disk_progress": [],
            "version": "1.0.0",
            "step_times": {
                "collect": self.histogram(0.9 * step_seconds),
                "commit": self.histogram(0.1 * step_seconds),
            },
            "checkpoints": {"written": wide(durable // 1000), "failed": "0", "last_seconds": 0.42,
                            "last_bytes": wide(96 * MIB),
                            "age_seconds": (self.step - durable) * step_seconds},
            "steps_per_second": 1 / step_seconds,
            "examples_per_second": workers * batch / step_seconds,
            "seconds_since_progress": 0.02,
            "lease_seconds": 10,
        }
        if durable == 0:
            del self.status["checkpoints"]["age_seconds"]
        self.event("JOINED", 0, "/job:ps/task:0 (ps-0:101) joined", task("ps", 0), at=-3)
        self.event("JOINED", 0, "/job:worker/task:0 (worker-0:200) joined", task("worker", 0), at=-2)
        self.event("TRAINING", 0, "training begins", at=0)
        for saved in range(1000, durable + 1, 1000):
            self.event("EVALUATION", saved, f"evaluation of step {saved}: loss "
                       f"{self.evaluation_loss(saved):.4f}, accuracy {self.accuracy(saved):.4f}",
                       task("worker", 0))
            self.event("CHECKPOINT", saved, f"the checkpoint of step {saved} is on disk, 420 ms after it was begun")

    def histogram(self, mean):
        bounds = [0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10]
        steps = self.step
        counts = [int(steps * (1 - math.exp(-((bound / mean) ** 3) * 0.7))) for bound in bounds]
        return {"bounds": bounds, "counts": [wide(c) for c in counts + [steps]],
                "sum_seconds": steps * mean}

    def make_ps(self, index):
        update = 0.004
        return {
            "task": task("ps", index),
            # ps 0 has no session.
            "incarnation": wide(min(index, 1)),
            "process": f"ps-{index}:{101 + index}",
            "alive": True,
            **({"silent_seconds": 0.4 + index * 0.3} if index > 0 else {}),
            "ps": {
                "memory": {"values": wide(24 * MIB), "slots": wide(48 * MIB),
                           "versions": wide(24 * MIB), "pushes": wide((40 + 3 * index) * MIB),
                           "limit": wide(GIB // 4), "resident": wide((190 + 7 * index) * MIB)},
                "updates": wide(self.step),
                "update_seconds": self.step * update,
                "received_bytes": wide(self.step * 4 * 24 * MIB),
                "sent_bytes": wide(self.step * 4 * 24 * MIB),
                "held_bytes": wide((24 + 0.4 * index) * MIB),
                "save_seconds": 0.38 + 0.02 * index,
                "save_bytes": wide(48 * MIB),
                "shared_memory": {"links": wide(index), "lent_bytes": wide(24 * MIB * index),
                                  "received_bytes": wide(MIB * index), "sent_bytes": wide(2 * MIB * index)},
            },
        }

    def make_worker(self, index, workers):
        share = 0.75 + 0.02 * self.random.random()
        steps = self.step
        total = self.step_seconds * steps
        compute = share * total
        return {
            "task": task("worker", index),
            "incarnation": wide(1),
            "process": f"worker-{index}:{200 + index}",
            "alive": True,
            "silent_seconds": 0.2 + 0.37 * (index % 8),
            "input_wait": {"recent": 0.03, "overall": 0.03},
            "worker": {
                "phases": {"input": 0.03 * total, "version": 0.05 * total, "compute": compute,
                           "push": 0.06 * total, "verdict": 0.86 * total - compute, "ticket": 0},
                "steps": wide(steps), "waiting_for": "verdict", "waiting_seconds": 0.004,
            },
            "pace": {"seconds_per_push": share * self.step_seconds * 1.1,
                     "last_share": 1 / workers, "slow": False},
        }

    def loss(self, step):
        noise = math.sin(step * 12.9898) * 0.015
        return 0.19 + 2.1 * math.exp(-step / 1100) + 0.12 * math.exp(-step / 9000) + noise

    def evaluation_loss(self, step):
        return 0.26 + 2.0 * math.exp(-step / 1200) + 0.05 * math.sin(step)**2 * 0.2

    def accuracy(self, step):
        return 0.905 - 0.8 * math.exp(-step / 900) + 0.003 * math.sin(step)

    def event(self, kind, step, text, about=None, at=None, generation=1):
        seconds = self.step_seconds * step if at is None else at
        self.events.append({"number": wide(len(self.events) + 1), "time": BEGUN + seconds,
                            "kind": kind, **({"task": about} if about else {}),
                            "generation": wide(generation), "step": wide(step), "text": text})

    def spend(self, worker, times, phase="compute"):
        """Makes `worker` take `times` as long, in `phase`; the others wait for it."""
        for entry in self.workers:
            phases = entry["worker"]["phases"]
            own = self.step_seconds * self.step
            if entry is worker:
                phases["verdict"] = 0.01 * own
                phases[phase] += 0.8 * own * times
                entry["pace"] = {"seconds_per_push": self.step_seconds * times, "last_share": 0.97,
                                 "slow": True}
            else:
                phases["verdict"] += 0.8 * own * times
                entry["pace"]["last_share"] = 0.03 / max(1, len(self.workers) - 1)
        self.slower(times)

    def slower(self, times):
        self.status["steps_per_second"] /= times
        self.status["examples_per_second"] /= times

    def evaluations(self):
        return [{"step": wide(step), "examples": "10000", "loss": self.evaluation_loss(step),
                 "accuracy": self.accuracy(step)}
                for step in range(1000, self.history_until + 1, 1000)]

    def points(self):
        every = max(1, self.total // 500)
        workers = max(1, len(self.workers))
        return [{"step": wide(step), "time": BEGUN + step * self.step_seconds,
                 "loss": self.loss(step), "examples": wide(step * workers * self.batch),
                 "steps_per_second": (1 + 0.04 * math.sin(step)) / self.step_seconds,
                 "examples_per_second": (1 + 0.04 * math.sin(step)) * workers * self.batch / self.step_seconds}
                for step in range(every, self.history_until + 1, every)]

    def answers(self):
        self.status["tasks"] = self.ps + self.workers
        evaluations = self.evaluations()
        if evaluations:
            self.status.setdefault("evaluation", evaluations[-1])
        return {"status": self.status, "events": self.events, "points": self.points(),
                "evaluations": evaluations}


def starting(tick):
    job = Job(tick, step=0)
    job.step = job.history_until = 0
    job.workers = []
    job.ps = job.ps[:1]
    job.ps[0].pop("ps")
    job.events = job.events[:1]
    job.status = {"generation": "1", "state": {"phase": "STARTING"}, "version": "1.0.0",
                  "waiting_for": "/job:ps/task:1, the declaration by /job:worker/task:0",
                  "lease_seconds": 10}
    return job


def training(tick):
    return Job(tick)


def slow_worker(tick):
    job = Job(tick, step_seconds=0.05)
    job.spend(job.workers[2], 10)
    job.event("SLOW", job.step - 40, "/job:worker/task:2 (worker-2:202) is slow: 500 ms per push, "
              "the median is 41 ms", task("worker", 2))
    return job


def lost_task(tick):
    job = Job(tick=0)
    lost = job.workers[1]
    lost["alive"] = False
    lost["silent_seconds"] = 23.0 + tick
    lost["worker"]["waiting_for"] = ""
    job.workers[3]["silent_seconds"] = 7.4
    job.status["waiting_for"] = "/job:worker/task:1 (worker-1:201)"
    job.status["seconds_since_progress"] = 23.2 + tick
    job.status["steps_per_second"] = job.status["examples_per_second"] = 0
    for worker in job.workers:
        if worker is not lost:
            worker["worker"]["waiting_seconds"] = 23.0 + tick
    job.event("LOST", job.step, "/job:worker/task:1 (worker-1:201) is lost: nothing was heard from it for 10s; "
              "the job waits for it for 5m at most",
              task("worker", 1))
    return job


def full_disk(tick):
    job = Job(tick)
    job.status["checkpoint_error"] = ("/job:ps/task:1 (ps-1:102): cannot write "
                                      "/checkpoints/g0001-step00006000/ps-1.data: No space left on device")
    job.status["durable_step"] = "5000"
    job.status["checkpoints"].update(failed="3", written="5",
                                     age_seconds=(job.step - 5000) * job.step_seconds)
    job.event("CHECKPOINT_FAILED", 6000, "checkpoints cannot be written: " +
              job.status["checkpoint_error"])
    return job


def slow_disk(tick):
    job = Job(tick, ps=3)
    job.ps[2]["ps"]["save_seconds"] = 14.2
    job.status["checkpoints"]["last_seconds"] = 14.3
    job.status["disk_progress"] = [{"bytes_done": wide(done * MIB), "bytes_total": wide(48 * MIB)}
                                   for done in (48, 47, 9)]
    return job


def slow_only_disk(tick):
    job = Job(tick, ps=1)
    job.ps[0]["ps"]["save_seconds"] = 9.6
    return job


def stopping(tick):
    job = Job(tick)
    job.event("LEFT", job.step, "/job:ps/task:0 was told to stop by SIGTERM; the job continues when it "
              "is started again", task("ps", 0))
    return job


def input_bound(tick):
    job = Job(tick)
    job.spend(job.workers[1], 3, "input")
    job.workers[1]["pace"]["slow"] = False
    job.workers[1]["input_wait"] = {"recent": 0.81, "overall": 0.74}
    job.workers[1]["worker"].update(waiting_for="input", waiting_seconds=0.11)
    return job


def asynchronous(tick):
    job = Job(tick)
    del job.status["replicas_to_aggregate"], job.status["total_num_replicas"], job.status["step_times"]
    job.status["staleness"] = [{"staleness": wide(s), "pushes": wide(p)} for s, p in
                               enumerate((310, 1240, 1985, 1402, 705, 330, 121, 60, 20, 5, 1, 1))]
    for i, worker in enumerate(job.workers):
        phases = worker["worker"]["phases"]
        phases["ticket"], phases["verdict"] = phases["verdict"] / 4, 0
        worker["pace"] = {"seconds_per_push": 0.2 + 0.01 * i}
        worker["worker"]["steps"] = wide(job.step // 4)
        worker["worker"]["waiting_for"] = ""
    for entry in job.status["workers"]:
        entry["pushes"] = wide(job.step // 4)
    return job


def rolled_back(tick):
    job = Job(tick)
    job.status["generation"] = "2"
    why = ("/job:ps/task:1 (ps-1:102) was lost: silent for 10 s; went on from the checkpoint of step "
           "5000 of generation 1")
    job.status["recovered"] = why
    job.ps[1].update(incarnation="2", process="ps-1:377")
    job.event("LOST", 5421, "/job:ps/task:1 (ps-1:102) is lost: silent for 10 s", task("ps", 1))
    job.event("GENERATION", 5000, f"generation 2: {why}", generation=2, at=275)
    job.event("JOINED", 5000, "/job:ps/task:1 (ps-1:377) joined", task("ps", 1), generation=2, at=280)
    job.event("TRAINING", 5000, "training resumes from step 5000", generation=2, at=282)
    return job


def done(tick):
    job = Job(tick, step=20000)
    job.status["state"] = {"phase": "DONE", "reporter": task("worker", 0)}
    job.status["steps_per_second"] = job.status["examples_per_second"] = 0
    for worker in job.workers[1:]:
        worker["alive"] = False
        job.event("LEFT", job.step, f"/job:worker/task:{worker['task']['index']} has left", worker["task"])
    job.event("DONE", job.step, "the job is done: 20000 steps")
    return job


def stopped(tick):
    job = Job(tick)
    reason = ("the job was stopped at step 5421 of 20000; started again with the same checkpoint directory, "
              "it goes on from there")
    job.status["state"] = {"phase": "STOPPED", "reason": reason}
    job.status["steps_per_second"] = job.status["examples_per_second"] = 0
    job.event("STOPPING", job.step, "an operator has asked the job to stop")
    job.event("STOPPED", job.step, reason)
    return job


def failed(tick):
    job = Job(tick=0)
    reason = "/job:worker/task:3 (worker-3:203): the loss has not been finite for 100 steps in a row"
    job.status["state"] = {"phase": "FAILED", "reason": reason}
    job.status["train_loss"] = "NaN"
    job.status["steps_per_second"] = job.status["examples_per_second"] = 0
    job.event("FAILED", job.step, reason, task("worker", 3))
    return job


def large(tick):
    job = Job(tick, ps=16, workers=200, step_seconds=0.8, step=900, batch=64)
    for i, worker in enumerate(job.workers):
        worker["pace"]["seconds_per_push"] = 0.3 + 0.1 * job.random.random()
        worker["pace"]["last_share"] = 0.0
    for index, pace in ((17, 2.9), (64, 1.4), (65, 1.3), (141, 0.95)):
        job.workers[index]["pace"] = {"seconds_per_push": pace, "last_share": pace / 6.6, "slow": True}
        phases = job.workers[index]["worker"]["phases"]
        phases["compute"], phases["verdict"] = phases["compute"] + phases["verdict"], 0
    job.workers[30]["alive"] = False
    job.workers[30]["silent_seconds"] = 31
    return job


def figures(tick):
    """Evaluations with metrics besides accuracy."""
    job = Job(tick)
    plain = job.evaluations
    job.evaluations = lambda: [
        {**result, "top_k_accuracy": 1 - (1 - result["accuracy"]) / 3, "auc": 0.75 + result["accuracy"] / 5,
         "mean_squared_error": 1.5 * result["loss"],
         "metrics": {"recall_at_10": result["accuracy"] / 2, "NDCG": "NaN"}}
        for result in plain()]
    return job


def tables(tick):
    """Embedding tables, of which each ps has a share."""
    job = Job(tick)
    for i, ps in enumerate(job.ps):
        ps["ps"]["memory"]["tables"] = wide((60 + 5 * i) * MIB)
        ps["ps"]["table_rows"] = wide(1_234_567 + i)
        ps["ps"]["tables"] = [
            {"name": "items", "rows": wide(1_234_000), "candidates": wide(81_000 + i), "reads": wide(40_000_000),
             "hits": wide(39_000_000), "admissions": wide(2_000_000), "expirations": wide(700_000), "evictions": wide(66_000)},
            {"name": "users", "rows": wide(567 + i), "candidates": "0", "reads": "0", "hits": "0",
             "admissions": wide(567 + i), "expirations": "0", "evictions": "0"},
        ]
    return job


def hostile(tick):
    """All texts that a peer may choose are markup, or very long."""
    job = Job(tick)
    job.status["waiting_for"] = HOSTILE
    job.status["recovered"] = HOSTILE + "y" * 300
    job.status["checkpoint_error"] = HOSTILE
    job.status["version"] = HOSTILE
    job.ps[0]["ps"]["tables"] = [{"name": HOSTILE + "t" * 100, "rows": "Infinity"}, {"name": "__proto__"}]
    job.workers[0]["process"] = HOSTILE + "z" * 200
    job.workers[0]["task"]["job"] = HOSTILE
    job.workers[1]["alive"] = False
    job.workers[1]["process"] = HOSTILE
    job.workers[2]["worker"]["waiting_for"] = HOSTILE
    job.workers[2]["worker"]["waiting_seconds"] = "Infinity"
    job.status["train_loss"] = "Infinity"
    job.status["evaluation"] = {**job.evaluations()[-1], "metrics": {HOSTILE: 1, "__proto__": 2, "w" * 64: "NaN"}}
    job.event(HOSTILE, job.step, HOSTILE + "x" * 500, {"job": HOSTILE, "index": 4294967295})
    job.event("LOST", job.step, HOSTILE, task("worker", 1), at=1e300)
    return job


SCENES = {
    "starting": starting,
    "training": training,
    "slow_worker": slow_worker,
    "lost_task": lost_task,
    "full_disk": full_disk,
    "slow_disk": slow_disk,
    "slow_only_disk": slow_only_disk,
    "stopping": stopping,
    "input_bound": input_bound,
    "asynchronous": asynchronous,
    "rolled_back": rolled_back,
    "done": done,
    "stopped": stopped,
    "failed": failed,
    "large": large,
    "figures": figures,
    "tables": tables,
    "hostile": hostile,
}


class FakeStatus:
    """Serves the page and the answers of scenes, each in a folder with its name, on a free port.

    `change` maps the name of a scene to the scene whose answers it gives instead; `broken` holds
    scenes that are unreachable. Each poll advances a job by a second, unless `frozen` is set.
    """

    def __init__(self, port=0):
        self.change = {}
        self.broken = set()
        self.frozen = False
        self.polls = {}
        self.last_status = {}
        fake = self

        class Handler(http.server.BaseHTTPRequestHandler):
            def do_GET(self):
                fake.answer(self)

            def log_message(self, format, *args):
                pass

        self.server = http.server.ThreadingHTTPServer(("127.0.0.1", port), Handler)
        self.server.daemon_threads = True
        self.thread = threading.Thread(target=self.server.serve_forever, daemon=True)
        self.thread.start()

    @property
    def address(self):
        return f"http://127.0.0.1:{self.server.server_address[1]}"

    def stop(self):
        self.server.shutdown()
        self.server.server_close()
        self.thread.join()

    def answer(self, request):
        url = urllib.parse.urlsplit(request.path)
        query = {name: int(values[0]) for name, values in urllib.parse.parse_qs(url.query).items()}
        scene, _, what = url.path.lstrip("/").partition("/")
        if scene in self.broken and what:
            request.close_connection = True
            request.connection.close()
            return
        if scene == "":
            listing = "".join(f'<p><a href="{name}/">{name}</a>' for name in SCENES)
            self.send(request, listing, "text/html; charset=utf-8")
        elif scene not in SCENES:
            request.send_error(404)
        elif what == "":
            with open(PAGE, encoding="utf-8") as page:
                self.send(request, page.read(), "text/html; charset=utf-8")
        elif what in ("status.json", "events.json", "history.json"):
            self.send(request, json.dumps(self.json(scene, what, query)), "application/json")
        else:
            request.send_error(404)

    def json(self, scene, what, query):
        tick = 0 if self.frozen else self.polls.get(scene, 0)
        if what == "status.json":
            self.polls[scene] = tick + 1
        answers = SCENES[self.change.get(scene, scene)](tick).answers()
        if what == "status.json":
            self.last_status[scene] = answers["status"]
            return answers["status"]
        if what == "events.json":
            return {"events": [e for e in answers["events"] if int(e["number"]) > query.get("after", 0)]}
        after = query.get("after_step", 0)
        points = [p for p in answers["points"] if int(p["step"]) > after]
        most = query.get("max_points", 0)
        if most and len(points) > most:
            points = [points[i * (len(points) - 1) // (most - 1)] for i in range(most)]
        return {"points": points,
                "evaluations": [e for e in answers["evaluations"] if int(e["step"]) > after]}

    def send(self, request, text, content_type):
        body = text.encode()
        try:
            request.send_response(200)
            request.send_header("Content-Type", content_type)
            request.send_header("Content-Length", str(len(body)))
            request.send_header("X-Content-Type-Options", "nosniff")
            request.end_headers()
            request.wfile.write(body)
        except OSError:
            pass  # The browser has closed the connection.


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--port", type=int, default=8000)
    fake = FakeStatus(parser.parse_args().port)
    print(f"serving {fake.address}/", flush=True)
    threading.Event().wait()


if __name__ == "__main__":
    main()
