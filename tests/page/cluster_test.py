# SPDX-License-Identifier: Apache-2.0

"""The status page of a real job, which `holdfast local` runs."""

import json
import os
import re
import signal
import subprocess
import tempfile
import time
import unittest
import urllib.request

from browser import Browser

ROOT = os.path.abspath(os.path.join(os.path.dirname(__file__), "..", ".."))
HOLDFAST = f"{ROOT}/bazel-bin/cli/holdfast"
LEASE_SECONDS = 2


class ClusterTest(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.folder = tempfile.TemporaryDirectory()
        with open(f"{ROOT}/examples/fashion_mnist_softmax.textproto", encoding="utf-8") as file:
            job = file.read()
        # The job lasts until the test ends.
        job = re.sub(r"(?m)^steps: .*", "steps: 10000000", job)
        path = f"{cls.folder.name}/job.textproto"
        with open(path, "w", encoding="utf-8") as file:
            file.write(job)
        cls.run_dir = f"{cls.folder.name}/run"
        cls.job = subprocess.Popen(
            [HOLDFAST, "local", f"--job={path}", f"--run_dir={cls.run_dir}", "--ps=2", "--workers=3",
             f"--ps_flags=--memory_limit=1GiB --lease={LEASE_SECONDS}s"],
            stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
        cls.address = None
        said = []
        for line in cls.job.stdout:
            said.append(line)
            found = re.search(r"status page: (http://\S+)", line)
            if found:
                cls.address = found.group(1)
                break
        if cls.address is None:
            raise AssertionError("holdfast local did not print the page's address:\n" + "".join(said))
        cls.browser = Browser()
        cls.browser.look()

    @classmethod
    def tearDownClass(cls):
        cls.browser.close()
        cls.job.terminate()
        cls.job.communicate()
        cls.folder.cleanup()

    def setUp(self):
        # ps 0 listens a moment after the address is printed.
        self.browser.driver.get("about:blank")
        self.browser.wait(self.answers, "anything: ps 0 does not listen")
        self.browser.open(self.address)
        self.browser.complaints()
        self.browser.wait(lambda: self.page("phase()") == "TRAINING", "training")

    def answers(self, path="status.json"):
        try:
            with urllib.request.urlopen(self.address + path, timeout=5) as answer:
                return json.load(answer)
        except OSError:
            return None

    def page(self, expression):
        return self.browser.script(f"return {expression}")

    def wait_quiet(self):
        """Waits until nothing needs attention."""
        self.browser.wait(lambda: self.browser.text("#attention-body") == "Nothing.", "that all is well")

    def test_numbers_are_those_of_the_coordinator(self):
        self.browser.wait(lambda: int(self.page("known.status.durable_step")) > 0, "a checkpoint")
        self.browser.wait(lambda: self.page("known.points.length") > 5, "a history")
        before = self.answers()
        self.browser.wait_polls(2)
        # Both are read at one moment, because the page changes continually.
        status, texts = self.browser.script("""
          const text = (id) => document.getElementById(id).innerText.replaceAll('\\u00a0', ' ');
          return [known.status, Object.fromEntries(['steps', 'train-loss', 'durable-step', 'rate-now', 'version'].map((id) => [id, text(id)]))]""")
        after = self.answers()
        self.assertEqual(texts["steps"], f"step {int(status['global_step']):,} of {int(status['total_steps']):,}")
        self.assertIn(f"step {int(status['durable_step']):,}", texts["durable-step"])
        self.assertEqual(texts["version"], f"Holdfast {status['version']}")
        self.assertTrue(texts["rate-now"].split()[0].replace(",", "").replace(".", "").isdigit())
        for field in ("global_step", "examples", "durable_step"):
            self.assertLessEqual(int(before[field]), int(status[field]))
            self.assertLessEqual(int(status[field]), int(after[field]))
        for field in ("total_steps", "generation", "version"):
            self.assertEqual(status[field], after[field])
        tasks = [t["task"]["job"] + " " + str(t["task"]["index"]) for t in status["tasks"]]
        self.assertEqual(sorted(tasks), ["ps 0", "ps 1", "worker 0", "worker 1", "worker 2"])
        # The curves end near the step that the job has reached.
        points = self.page("known.points.map((p) => Number(p.step))")
        self.assertEqual(points, sorted(set(points)))
        self.assertGreater(points[-1], 0.5 * int(status["global_step"]))
        # The list shows the newest events; a long job has pushed its first ones out of it.
        shown = self.browser.texts("#events-body li")
        told = [event["text"] for event in self.answers("events.json")["events"]]
        self.assertNotEqual(shown, [])
        for text in shown:
            self.assertTrue(any(line in text.replace("\u00a0", " ") for line in told), text)
        self.assertEqual(self.browser.complaints(), [])

    def test_every_section_knows_something(self):
        # Workers report when they renew their leases.
        self.browser.wait(lambda: self.page("document.querySelectorAll('#workers-body .stack').length") == 3,
                          "where the time of three workers goes")
        self.browser.wait(lambda: self.page("document.querySelectorAll('#memory-body .stack').length") == 2,
                          "the memory of two ps")
        self.assertEqual(len(self.browser.texts("#shards-body tbody tr")), 2)
        self.browser.wait(lambda: "1 GiB" in self.browser.text("#memory-body"), "the limit of memory")
        self.browser.wait(lambda: self.page("stepTime(workers()[0]) !== null && stepTime(workers()[0]).phases.compute > 0"),
                          "time spent on computing")
        self.assertIn("A step collects its gradients in", self.browser.text("#workers-body"))

    def test_names_a_paused_worker(self):
        self.wait_quiet()
        with open(f"{self.run_dir}/worker-1.pid", encoding="utf-8") as file:
            pid = int(file.read())
        os.kill(pid, signal.SIGSTOP)
        begun = time.monotonic()
        try:
            self.browser.wait(lambda: "Worker 1 is" in self.browser.text("#attention-body"), "the paused worker")
            print(f"named after {time.monotonic() - begun:.1f} s, the lease is {LEASE_SECONDS} s", flush=True)
            self.browser.wait(lambda: "Worker 1 is lost" in self.browser.text("#attention-body"), "that it is lost")
        finally:
            os.kill(pid, signal.SIGCONT)
        # A lost task is fenced or comes back; the events show which.
        self.browser.wait(lambda: any("worker/task:1" in text for text in self.browser.texts("#events-body li")),
                          "an event")

    def test_says_since_when_its_data_is_old(self):
        self.wait_quiet()
        with open(f"{self.run_dir}/ps-0.pid", encoding="utf-8") as file:
            pid = int(file.read())
        os.kill(pid, signal.SIGSTOP)
        begun = time.monotonic()
        paused = time.strftime("%H:%M:%S")
        try:
            self.browser.wait(lambda: "ps 0 has not answered since" in self.browser.text("#attention-body"),
                              "that ps 0 does not answer")
            print(f"noticed after {time.monotonic() - begun:.1f} s", flush=True)
            self.assertIn("It did not answer within 5 s", self.browser.text("#attention-body"))
            since = self.browser.text("#attention-body strong").split()[-1]
            # The last answer came at most a second before the pause.
            self.assertLessEqual(abs(seconds_of(paused) - seconds_of(since)), 2)
            self.assertEqual(self.browser.text("#live"), f"last answer {since}")
            self.assertTrue(self.browser.driver.title.startswith("No answer"))
        finally:
            os.kill(pid, signal.SIGCONT)
        self.browser.wait(lambda: "has not answered" not in self.browser.text("#attention-body"), "that ps 0 is back")
        # The browser logs each request that failed.
        self.browser.complaints()


def seconds_of(clock):
    hours, minutes, seconds = map(int, clock.split(":"))
    return 3600 * hours + 60 * minutes + seconds


if __name__ == "__main__":
    unittest.main()
