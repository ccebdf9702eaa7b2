# SPDX-License-Identifier: Apache-2.0

"""Cells of IPython's shell, which is also that of Jupyter's kernels: which errors end the job."""

import contextlib
import io
import unittest

from IPython.core.interactiveshell import InteractiveShell
from local_cluster import LocalCluster

import holdfast

CONNECT = """
import itertools
import numpy as np
import holdfast

one = np.ones(1, np.float32)
cluster = holdfast.connect({spec}, job_name="worker", task_index=0, connect_timeout=5)

def declare(steps):
    cluster.declare({{"w": one}}, optimizer=holdfast.Sgd(learning_rate=1.0), steps=steps)

def push():
    cluster.push([one], loss=0.0, examples=1)

class Bar:  # like tqdm
    def __init__(self, iterable):
        self.iterable = iterable

    def __iter__(self):
        for item in self.iterable:
            yield item

class Loader:
    def __init__(self, iterable):
        self.iterator = iter(iterable)

    def __iter__(self):
        return self

    def __next__(self):
        return next(self.iterator)

def numbered():
    for batch in cluster.batches():
        yield batch, batch

def train():
    for batch in cluster.batches():
        push()
        fail()

def fail():
    raise KeyError("no such label")
"""

# Each of them leaves a loop by the KeyError.
LEAVING = {
    "at once": "for batch in cluster.batches(): fail()",
    "after the push": "for batch in cluster.batches(): push(); fail()",
    "in a function": "train()",
    "kept generator": "kept = cluster.batches()\nfor batch in kept: push(); fail()",
    "progress bar": "bar = Bar(cluster.batches())\nfor batch in bar: push(); fail()",
    "iterator": "loader = Loader(cluster.batches())\nfor batch in loader: fail()",
    "generator of its own": "for batch, number in numbered(): fail()",
    "steps counted": "for _, batch in zip(range(3), cluster.batches()): fail()",
    "second loop": """
for batch in cluster.batches():
    push()
    break
for batch in cluster.batches():
    fail()
""",
    "another error follows": """
try:
    train()
except KeyError as error:
    raise RuntimeError("training failed") from error
""",
    "finally": """
try:
    train()
finally:
    a_typo
""",
    "a with statement": """
with cluster:
    train()
""",
    "a script": "%run -i {folder}/script.py",
    "awaited": """
async def steps():
    for batch in cluster.batches():
        fail()
await steps()
""",
}

# None of them does. The job has more steps than they take.
GOING_ON = {
    "typo": "a_typo",
    "not a program": "for in",
    "interrupted": "for batch in cluster.batches(): raise KeyboardInterrupt",
    "interrupted after the push": "for batch in cluster.batches(): push(); raise KeyboardInterrupt",
    "typo in a cell of its own": "a_typo",
    "exit": "for batch in cluster.batches(): raise SystemExit(3)",
    "misuse": "for batch in cluster.batches(): cluster.skip(); cluster.skip()",
    "caught": """
try:
    train()
except KeyError as error:
    print("failed", error)
a_typo
""",
    "loop that was left": "for batch in cluster.batches(): push(); break\na_typo",
    "steps counted": "for _, batch in zip(range(2), cluster.batches()): push()\nfail()",
    "batch taken by hand": "batch = next(cluster.batches())",
    "and its error": "fail()",
    "script with a typo": "%run -i {folder}/typo.py",
}


class CellsTest(unittest.TestCase):
    def setUp(self):
        self.shell = InteractiveShell.instance()
        self.shell.reset()

    def run_cell(self, text):
        """The error of a cell, and its output."""
        output = io.StringIO()
        with contextlib.redirect_stdout(output), contextlib.redirect_stderr(output):
            result = self.shell.run_cell(text)
        return result.error_before_exec or result.error_in_exec, output.getvalue()

    def succeed(self, text):
        error, output = self.run_cell(text)
        self.assertIsNone(error, output)
        return output

    def connect(self, ps):
        self.succeed(CONNECT.format(spec=ps.spec))
        scripts = {"script": "for batch in cluster.batches(): fail()", "typo": "a_typo"}
        for name, text in scripts.items():
            with open(f"{ps.folder}/{name}.py", "w", encoding="utf-8") as file:
                file.write(text)
        self.addCleanup(lambda: self.shell.user_ns["cluster"].close())

    def test_errors_that_leave_a_loop(self):
        for name, text in LEAVING.items():
            with self.subTest(name), LocalCluster() as ps:
                self.connect(ps)
                self.succeed("declare(3)")
                _, output = self.run_cell(text.format(folder=ps.folder))
                self.assertIn("no such label", output)
                ps.await_end(1)
                self.assertRegex(ps.logs(), "left before the end: /job:worker/task:0: [KNR].*Error")
                error, _ = self.run_cell("cluster.status()")
                self.assertIsInstance(error, holdfast.Error)
                if name != "a with statement":
                    self.assertRegex(output, "holdfast: .*Error has left the loop over batches, ")
                    self.assertIn("has left the loop over batches", str(error))

    def test_errors_after_which_the_user_goes_on(self):
        with LocalCluster() as ps:
            self.connect(ps)
            self.succeed("declare(20)")
            for name, text in GOING_ON.items():
                with self.subTest(name):
                    error, output = self.run_cell(text.format(folder=ps.folder))
                    if "script" not in name:  # its error is only shown
                        self.assertEqual(error is None, name == "batch taken by hand", output)
                    self.assertNotIn("ended the job", output)
                    self.succeed("assert cluster.status().phase == 'TRAINING'")
            self.succeed("for batch in cluster.batches(): push()")
            # The job is done: nothing is left that an error could end.
            self.run_cell("for batch in cluster.batches(): pass\nfail()")
            self.succeed("assert cluster.status().phase == 'DONE'; cluster.close()")
            ps.await_end()

    def test_a_declaration_that_is_corrected(self):
        with LocalCluster() as ps:
            for wrong in (
                "cluster.declare({'w': 'x'}, optimizer=holdfast.Sgd(learning_rate=1.0), steps=3)",
                "declare(0)",
                "a_typo",
                "with cluster: declare(0)",
                "with cluster: a_typo",
            ):
                # The whole cell each time.
                cell = CONNECT.format(spec=ps.spec)
                error, output = self.run_cell(cell + wrong)
                self.assertIsNotNone(error, output)
                self.succeed(cell)
            self.succeed(cell + "declare(2)\nfor batch in cluster.batches(): push()")
            self.succeed("cluster.close()")
            ps.await_end()


if __name__ == "__main__":
    unittest.main()
