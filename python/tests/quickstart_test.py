# SPDX-License-Identifier: Apache-2.0

"""The scripts of docs/python/quickstart.md, run from its text."""

import os
import re
import subprocess
import tempfile
import unittest

from local_cluster import LocalCluster

with open("docs/python/quickstart.md", encoding="utf-8") as file:
    TEXT = file.read()
SCRIPTS = dict(re.findall(r"^```python\n# (\S+)\n(.*?)^```$", TEXT, re.M | re.S))
COMMANDS = re.findall(r"^```sh\n(.*?)^```$", TEXT, re.M | re.S)

# One thread, because other numbers give other bits. `holdfast local` sets it as well.
ENVIRONMENT = {"OMP_NUM_THREADS": "1"}


def run(name, *, num_ps, workers=2):
    """The outputs of the workers, whose script has to end well."""
    with LocalCluster(num_ps, workers) as ps:
        scripts = [ps.run(SCRIPTS[name], i, **ENVIRONMENT) for i in range(workers)]
        for script in scripts:
            if script.wait(200) != 0:
                raise AssertionError(script.output)
        ps.await_end()
        return [script.output for script in scripts]


def run_commands(text):
    """The output of shell commands, in a folder with the scripts; a script's, too."""
    with tempfile.TemporaryDirectory() as folder:
        for name, script in SCRIPTS.items():
            with open(os.path.join(folder, name), "w", encoding="utf-8") as file:
                file.write(script)
        path = f"{os.path.abspath('cli')}:{os.environ['PATH']}"
        done = subprocess.run(
            ["/bin/bash", "-euc", text.replace("/tmp/", folder + "/")],
            cwd=folder,
            env={**os.environ, "PATH": path},
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )
        if done.returncode != 0:
            raise AssertionError(done.stdout)
        return done.stdout


class QuickstartTest(unittest.TestCase):
    def test_there_is_no_other_block(self):
        self.assertEqual(TEXT.count("```"), 2 * (len(SCRIPTS) + len(COMMANDS)))

    def test_train(self):
        digests = set()
        outputs = [run_commands(commands) for commands in COMMANDS]
        for num_ps in (1, 4):
            outputs.extend(run("train.py", num_ps=num_ps))
        for output in outputs:
            # examples/fashion_mnist_softmax.textproto: 0.8377 (docs/performance.md).
            accuracy = float(re.search(r"accuracy (.*)$", output, re.M)[1])
            self.assertAlmostEqual(accuracy, 0.8377, delta=0.002)
            digests.add(re.search(r"digest (\w{64})$", output, re.M)[1])
        self.assertEqual(len(outputs), 5)
        self.assertEqual(len(digests), 1)

    def test_the_training_is_ten_lines(self):
        text = SCRIPTS["train.py"]
        body = text[text.index("with holdfast.connect()") : text.index("    values = ")]
        statements = re.sub(r"declare\(\n.*?\n.*?\)\n", "declare()\n", body, flags=re.S)
        self.assertLessEqual(len(statements.splitlines()), 10)

    def test_asynchronous(self):
        chief, other = run("asynchronous.py", num_ps=1)
        self.assertIn("all near 1: True", chief)
        self.assertEqual(other, "")

    def test_embedding(self):
        chief, other = run("embedding.py", num_ps=2)
        self.assertIn("all are found: True", chief)
        self.assertEqual(other, "")


if __name__ == "__main__":
    unittest.main()
