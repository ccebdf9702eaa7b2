# SPDX-License-Identifier: Apache-2.0

"""One job, whose numbers are the same wherever they are shown: on the page, in `holdfast status --json`,
in /metrics and in result.json."""

import json
import os
import re
import signal
import tempfile
import time
import unittest

from browser import Browser
from loopback import Loopback, job_text, metrics_of

STEPS = 500
VERDICTS = ("accepted", "stale", "duplicate", "fenced", "aborted")


class NumbersTest(unittest.TestCase):
    """The job has two recoveries and stale pushes. When it is done, worker 2 is paused, but not
    lost: ps 0 waits for it to leave, so that everything can be compared at rest."""

    @classmethod
    def setUpClass(cls):
        cls.folder = tempfile.TemporaryDirectory()
        cls.addClassCleanup(cls.folder.cleanup)
        cls.job = Loopback(
            cls.folder.name,
            job_text("fashion_mnist_softmax", steps=f": {STEPS}",
                     consistency=" { synchronous { replicas_to_aggregate: 2 total_num_replicas: 3 } }",
                     evaluation=" { every_steps: 100 }", checkpoints=" { every_steps: 50 }"),
            ps=2, workers=3, worker="tests/slow_worker/slow_worker", ps_flags=["--lease=60s"],
            worker_flags=["--slow_step_ms_max=20"])
        cls.addClassCleanup(cls.job.close)
        cls.browser = Browser()
        cls.addClassCleanup(cls.browser.close)
        cls.browser.look()
        job = cls.job
        job.start()
        job.wait(lambda s: int(s["durable_step"]) >= 100, "step 100")
        # Not killed: its successor would have to wait until its lease expires.
        job.signal("ps-1", signal.SIGTERM)
        job.end("ps-1")
        job.start("ps-1")
        job.wait(lambda s: s["generation"] == "2" and int(s["durable_step"]) >= 200, "step 200")
        job.signal("ps-0", signal.SIGTERM)
        cls.stopped_with = job.end("ps-0")
        job.start("ps-0")
        job.wait(lambda s: s["generation"] == "3" and int(s["durable_step"]) >= 300, "step 300")
        job.signal("worker-2", signal.SIGSTOP)
        cls.status = job.wait(lambda s: s["state"]["phase"] == "DONE", "its end")
        deadline = time.monotonic() + 60
        while not os.path.exists(job.result_path) and time.monotonic() < deadline:
            time.sleep(0.05)
        # Both other workers leave the cluster.
        job.end("worker-0")
        job.end("worker-1")
        with open(job.result_path, encoding="utf-8") as file:
            cls.result = json.load(file)
        cls.metrics = metrics_of(job.get("metrics"))
        answer = job.command("status", "--json")
        assert answer.returncode == 0, answer.stderr
        cls.command = json.loads(answer.stdout)
        cls.browser.open(job.address, polls=2)

    def page(self, selector):
        return self.browser.text(selector)

    def metric(self, name):
        return self.metrics[f"holdfast_job_{name}"]

    def test_a_planned_restart_is_told(self):
        self.assertEqual(self.stopped_with, 138)
        told = [event["text"] for event in json.loads(self.job.get("events.json"))["events"]]
        self.assertTrue(any(re.match(r"/job:ps/task:0 \(.*\) was told to stop by SIGTERM; ", text) for text in told), told)
        # An orderly end is not an error.
        self.assertNotRegex(self.job.log("ps-0"), r"(?m)^E\d{8} ")

    def test_progress(self):
        for status in (self.command, self.browser.script("return known.status")):
            self.assertEqual(int(status["global_step"]), STEPS)
            self.assertEqual(status["state"]["phase"], "DONE")
        self.assertEqual(self.metric("global_step"), STEPS)
        self.assertEqual(self.metric("total_steps"), STEPS)
        self.assertEqual(self.metric('state{state="done"}'), 1)
        self.assertEqual(self.result["global_step"], STEPS)
        self.assertEqual(self.page("#steps"), f"step {STEPS} of {STEPS}")
        self.assertEqual(self.page("#percent"), "100.0 %")

    def test_examples(self):
        # Two pushes of 100 examples each make a step.
        examples = 2 * 100 * STEPS
        self.assertEqual(int(self.command["examples"]), examples)
        self.assertEqual(self.metric("examples"), examples)
        self.assertEqual(self.result["examples"], examples)
        self.assertIn(f"{examples:,} examples", self.page("#training-time"))

    def test_pushes_by_verdict(self):
        shown = dict(zip(self.browser.texts("#pushes-body tbody th"),
                         self.browser.texts("#pushes-body tbody td.number")))
        for verdict in VERDICTS:
            count = int(self.command["pushes"][verdict])
            self.assertEqual(self.metric(f'contributions{{verdict="{verdict}"}}'), count)
            self.assertEqual(self.result["pushes"].get(verdict, 0), count)
            self.assertEqual(shown[verdict], f"{count:,}")
        # Two accepted pushes per step; and some pushes of the third worker came late.
        self.assertEqual(int(self.command["pushes"]["accepted"]), 2 * STEPS)
        self.assertGreater(int(self.command["pushes"]["stale"]), 0)
        not_finite = int(self.command["pushes"]["not_finite"])
        self.assertEqual(self.metric("not_finite_contributions"), not_finite)
        self.assertEqual(shown["not finite"], f"{not_finite:,}")
        self.assertEqual(self.result["pushes"].get("not_finite", 0), not_finite)

    def test_workers(self):
        given = {f"/job:worker/task:{entry['worker']['index']}": (int(entry["pushes"]), int(entry["examples"]))
                 for entry in self.command["workers"]}
        told = {entry["task"]: (entry.get("pushes", 0), entry.get("examples", 0)) for entry in self.result["by_worker"]}
        self.assertEqual(given, told)
        self.assertEqual(sum(pushes for pushes, _ in given.values()), 2 * STEPS)
        for index in range(3):
            row = self.browser.texts(f'#workers-body > table tr[data-key="worker {index}"] td.number')
            self.assertEqual(row[-1], f"{given[f'/job:worker/task:{index}'][0]:,}")

    def test_loss(self):
        loss = self.command["train_loss"]
        self.assertEqual(self.browser.script("return known.status.train_loss"), loss)
        self.assertAlmostEqual(self.metric("train_loss"), loss, delta=1e-12)
        self.assertAlmostEqual(self.result["train_loss"], loss, delta=1e-12)
        self.assertTrue(self.page("#train-loss").startswith(f"{loss:.4f}"))

    def test_evaluation(self):
        accuracy = self.command["evaluation"]["accuracy"]
        self.assertEqual(int(self.command["evaluation"]["step"]), STEPS)
        self.assertEqual(self.metric("evaluation_step"), STEPS)
        self.assertAlmostEqual(self.metric("evaluation_accuracy_ratio"), accuracy, delta=1e-12)
        self.assertAlmostEqual(self.metric("evaluation_loss"), self.command["evaluation"]["loss"], delta=1e-12)
        self.assertAlmostEqual(self.result["test_accuracy"], accuracy, delta=1e-12)
        self.assertAlmostEqual(self.result["test_loss"], self.command["evaluation"]["loss"], delta=1e-12)
        self.assertIn(f"{100 * accuracy:.2f} %", self.page("#evaluation"))

    def test_generations(self):
        self.assertEqual(self.command["generation"], "3")
        self.assertEqual(self.metric("generation"), 3)
        self.assertEqual(self.result["recoveries"], 2)
        self.assertEqual(self.page("#generation"), "3")

    def test_time(self):
        seconds = self.command["training_seconds"]
        self.assertAlmostEqual(self.metric("training_seconds"), seconds, delta=1e-9)
        self.assertAlmostEqual(self.result["wall_seconds"], seconds, delta=1e-9)

    def test_checkpoints(self):
        self.assertEqual(int(self.command["durable_step"]), STEPS)
        self.assertEqual(self.metric("durable_step"), STEPS)
        self.assertIn(f"step {STEPS}", self.page("#durable-step"))
        written = int(self.command["checkpoints"]["written"])
        self.assertEqual(self.metric("checkpoints_written_total"), written)
        self.assertEqual(self.page("#pair-written").split()[0], str(written))

    def test_shared_memory(self):
        # All tasks are on one host, so there are links; but tensors of 31 kB are too small to be
        # lent, and are sent.
        for entry in self.command["tasks"]:
            if entry["task"]["job"] != "ps":
                continue
            used = entry["ps"]["shared_memory"]
            self.assertEqual((int(used["received_bytes"]), int(used["sent_bytes"]), int(used["lent_bytes"])), (0, 0, 0))
            self.assertGreater(int(entry["ps"]["sent_bytes"]), 0)
        links = int(next(entry for entry in self.browser.script("return known.status.tasks")
                         if entry["task"] == {"job": "ps", "index": 0})["ps"]["shared_memory"]["links"])
        # The link of the paused worker.
        self.assertEqual(links, 1)
        shown = " ".join(self.page('#shards-body tr[data-key="ps 0"]').split())
        self.assertIn("0 B 1 link 0 B lent", shown)

    def test_history_ends_where_the_job_does(self):
        last = self.browser.script("return known.points[known.points.length - 1]")
        self.assertEqual(int(last["step"]), STEPS)
        self.assertEqual(last["examples"], self.command["examples"])
        rows = self.job.command("history", "--csv").stdout.strip().splitlines()
        self.assertEqual(int(rows[-1].split(",")[0]), STEPS)

    def test_screen(self):
        text = self.job.command("status").stdout
        self.assertRegex(text, rf"done .*step {STEPS} of {STEPS}")
        self.assertIn("generation 3", text)
        self.assertRegex(text, rf"examples +{2 * 100 * STEPS} in ")
        self.assertIn(f"{self.command['train_loss']:.4f}; test loss {self.command['evaluation']['loss']:.4f}, "
                      f"accuracy {self.command['evaluation']['accuracy']:.4f} at step {STEPS}", text)
        for verdict in VERDICTS[1:]:
            if int(self.command["pushes"][verdict]) > 0:
                self.assertTrue(re.search(rf"\b{self.command['pushes'][verdict]} {verdict}\b", text), text)


if __name__ == "__main__":
    unittest.main()
