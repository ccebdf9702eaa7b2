# SPDX-License-Identifier: Apache-2.0

"""What may be corrected in the process that has made the mistake, and errors at Python's prompt."""

import json
import os
import pty
import subprocess
import sys
import unittest

import numpy as np
from local_cluster import LocalCluster

import holdfast

ONE = np.ones(1, np.float32)
SGD = holdfast.Sgd(learning_rate=1.0)

BEGIN = """
import numpy as np, holdfast, sys
one = np.ones(1, np.float32)
cluster = holdfast.connect()
cluster.declare({"w": holdfast.Variable(1)}, optimizer=holdfast.Sgd(learning_rate=1.0), steps=3)
"""

# Errors after which the user goes on, and the rest of the job.
HARMLESS = """
a_typo
for batch in cluster.batches():
    cluster.push([one], loss=0.0, examples=1)
    break

another_typo
for batch in cluster.batches():
    raise KeyboardInterrupt

a_third_typo
for batch in cluster.batches():
    cluster.push([one], loss=0.0, examples=1)

print("ends with", cluster.pull()["w"])
a_last_typo
"""


class AgainTest(unittest.TestCase):
    """Without a lease between two attempts: it is 10 s, and takes longer than the whole test."""

    def setUp(self):
        self.ps = LocalCluster()
        self.addCleanup(self.ps.__exit__)

    def connect(self, **more):
        cluster = holdfast.connect(**self.ps.task(), connect_timeout=5, **more)
        self.addCleanup(cluster.close)
        return cluster

    def declare(self, cluster, first=ONE, *, steps=2, **more):
        cluster.declare({"w": first}, optimizer=SGD, steps=steps, **more)

    def check_that_it_trains(self, cluster, first=1):
        for _ in cluster.batches():
            cluster.push([ONE], loss=0.0, examples=1)
        self.assertEqual(cluster.pull()["w"], first - 2)
        cluster.close()
        self.ps.await_end()

    def check_that_it_fails(self, cluster):
        """In the order in which the errors are found."""
        with self.assertRaisesRegex(TypeError, "float64"):
            self.declare(cluster, np.ones(1))
        with self.assertRaisesRegex(holdfast.Refused, "total_steps"):
            self.declare(cluster, 3 * np.ones((2, 2), np.float32), steps=0)
        with self.assertRaisesRegex(holdfast.Refused, "declared twice"):
            self.declare(
                cluster,
                tables={"w": holdfast.EmbeddingTable(2, holdfast.Zeros(), max_rows_per_push=1)},
            )

    def test_declared_again(self):
        cluster = self.connect()
        self.check_that_it_fails(cluster)
        self.declare(cluster)
        self.declare(cluster)
        with self.assertRaisesRegex(holdfast.Refused, "already declared something else"):
            self.declare(cluster, steps=3)
        self.check_that_it_trains(cluster)

    def test_connected_again(self):
        earlier = []
        for _ in range(3):
            cluster = self.connect()
            self.check_that_it_fails(cluster)
            earlier.append(cluster)
        cluster = self.connect()
        self.declare(cluster)
        for one in earlier:
            with self.assertRaisesRegex(
                holdfast.Error, "this process connected as /job:worker/task:0 again, .*: use the"
            ):
                self.declare(one)
            one.close()
        self.check_that_it_trains(cluster)

    def test_connected_again_in_a_loop(self):
        cluster = self.connect()
        self.declare(cluster)
        batches = cluster.batches()
        next(batches)
        cluster.push([ONE], loss=0.0, examples=1)
        # Another way to name the same cluster.
        with open(f"{self.ps.folder}/cluster.json", "w", encoding="utf-8") as file:
            json.dump({"cluster": self.ps.spec}, file)
        again = holdfast.connect(
            f"{self.ps.folder}/cluster.json", job_name="worker", task_index=0, connect_timeout=5
        )
        self.addCleanup(again.close)
        with self.assertRaisesRegex(holdfast.Error, "connected as /job:worker/task:0 again"):
            next(batches)
        self.declare(again)
        self.check_that_it_trains(again)

    def test_places_of_others_are_left_alone(self):
        cluster = self.connect()
        self.declare(cluster)
        with LocalCluster() as other, holdfast.connect(**other.task()):
            with holdfast.connect(self.ps.spec, job_name="client") as client:
                with holdfast.connect(self.ps.spec, job_name="client"):
                    self.assertEqual(client.status().phase, "TRAINING")
        self.check_that_it_trains(cluster)

    def test_what_was_refused_because_of_an_earlier_declaration(self):
        cluster = self.connect()
        self.declare(cluster)
        cluster.close()
        cluster = self.connect()
        with self.assertRaisesRegex(holdfast.Refused, "a different job .*total_steps: 2 -> 3"):
            self.declare(cluster, steps=3)
        # It does not train by a declaration that it was refused.
        with self.assertRaisesRegex(holdfast.Refused, "a different job .*total_steps: 2 -> 3"):
            next(cluster.batches())
        self.declare(cluster)
        self.check_that_it_trains(cluster)

    def test_a_job_that_resumes(self):
        cluster = self.connect()
        checkpoints = holdfast.Checkpoints(every_steps=1)
        self.declare(cluster, checkpoints=checkpoints)
        for _ in cluster.batches():
            cluster.push([ONE], loss=0.0, examples=1)
            break
        cluster.checkpoint()
        cluster.close()
        self.ps.kill_ps(0)
        for _ in range(2):
            cluster = self.connect()
            with self.assertRaisesRegex(holdfast.Refused, "cannot change .* seed: 3"):
                self.declare(cluster, checkpoints=checkpoints, seed=3)
        self.declare(cluster, checkpoints=checkpoints)
        self.assertEqual(list(cluster.pull()["w"]), [0])
        self.check_that_it_trains(cluster)


class InteractiveTest(unittest.TestCase):
    def run_lines(self, ps, text, *words):
        """Gives the lines to an interpreter, and returns its output and exit code."""
        task = {"cluster": ps.spec, "task": {"type": "worker", "index": 0}}
        done = subprocess.run(
            [sys.executable, *words],
            input=text,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            env={**os.environ, "TF_CONFIG": json.dumps(task)},
            text=True,
            check=False,
            timeout=60,
        )
        return done.stdout, done.returncode

    def test_what_ends_nothing(self):
        with LocalCluster() as ps:
            output, code = self.run_lines(ps, BEGIN + HARMLESS, "-i")
            self.assertEqual(code, 0, output)
            for word in ("a_typo", "another_typo", "a_third_typo", "a_last_typo"):
                self.assertIn(f"NameError: name '{word}'", output)
            self.assertIn("\nKeyboardInterrupt\n", output)
            self.assertIn("ends with [-3.]", output)
            self.assertNotIn("ended the job", output)
            ps.await_end()

    def test_an_error_that_leaves_the_loop(self):
        loops = {
            "before the push": """
for batch in cluster.batches():
    raise ValueError("of no use")

""",
            "after the push, in a function": """
def train():
    for batch in cluster.batches():
        cluster.push([one], loss=0.0, examples=1)
        raise ValueError("of no use")

train()
""",
        }
        for name, loop in loops.items():
            with self.subTest(name), LocalCluster() as ps:
                output, code = self.run_lines(ps, BEGIN + loop + "cluster.status()\n", "-i")
                self.assertEqual(code, 0, output)
                self.assertIn(
                    "holdfast: ValueError has left the loop over batches, which ended the job for "
                    "all workers: of no use\n",
                    output,
                )
                self.assertIn("holdfast.Error: ValueError has left the loop", output)
                ps.await_end(1)
                self.assertIn("/job:worker/task:0: ValueError: of no use", ps.logs())

    def test_an_error_of_the_cluster_ends_neither_job_nor_prompt(self):
        with LocalCluster() as ps:
            misuse = """
for batch in cluster.batches():
    cluster.skip()
    cluster.skip()

"""
            output, code = self.run_lines(ps, BEGIN + misuse + HARMLESS, "-i")
            self.assertEqual(code, 0, output)
            self.assertIn("holdfast.Error: there is no current batch", output)
            self.assertIn("ends with [-2.]", output)
            ps.await_end()

    def test_a_script_before_the_prompt(self):
        with LocalCluster() as ps:
            path = f"{ps.folder}/script.py"
            with open(path, "w", encoding="utf-8") as file:
                file.write(BEGIN + "a_typo_in_a_script\n")
            output, code = self.run_lines(ps, HARMLESS, "-i", path)
            self.assertEqual(code, 0, output)
            self.assertIn("name 'a_typo_in_a_script'", output)
            self.assertIn("ends with [-3.]", output)
            ps.await_end()

    def test_at_a_terminal(self):
        with LocalCluster() as ps:
            task = {"cluster": ps.spec, "task": {"type": "worker", "index": 0}}
            ours, theirs = pty.openpty()
            python = subprocess.Popen(
                [sys.executable],
                stdin=theirs,
                stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT,
                # From 3.13 on, Python's own editor would indent pasted lines once more.
                env={**os.environ, "TF_CONFIG": json.dumps(task), "PYTHON_BASIC_REPL": "1"},
            )
            os.close(theirs)
            self.addCleanup(os.close, ours)
            os.write(ours, (BEGIN + HARMLESS + "exit()\n").encode())
            output, _ = python.communicate(timeout=60)
            self.assertEqual(python.returncode, 0, output)
            self.assertIn(b"name 'a_last_typo'", output)
            self.assertIn(b"ends with [-3.]", output)
            ps.await_end()


class EndTest(unittest.TestCase):
    def test_how_a_script_ends_is_known(self):
        script = """
import atexit, sys
from holdfast import Error, _process
atexit.register(lambda: print("how", repr(_process.how_it_ends)))
_process.end_as_daemons_do()
"""
        for end, how, code in (
            ("", "SystemExit(0)", 0),
            ("sys.exit()", "SystemExit(None)", 0),
            ("sys.exit(0)", "SystemExit(0)", 0),
            ("sys.exit(3)", "SystemExit(3)", 3),
            ("sys.exit('a reason')", "SystemExit('a reason')", 1),
            ("raise ValueError(1)", "ValueError(1)", 1),
            ("raise Error('text', exit_code=138)", "Error('text')", 138),
        ):
            with self.subTest(end):
                done = subprocess.run(
                    [sys.executable, "-c", script + end],
                    capture_output=True,
                    text=True,
                    check=False,
                )
                self.assertEqual((done.stdout, done.returncode), (f"how {how}\n", code))


if __name__ == "__main__":
    unittest.main()
