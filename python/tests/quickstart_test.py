"""The scripts of docs/python/quickstart.md, run from its text."""

import re
import unittest

from local_cluster import LocalCluster

with open("docs/python/quickstart.md", encoding="utf-8") as file:
    SCRIPTS = dict(re.findall(r"^```python\n# (\S+)\n(.*?)^```$", file.read(), re.M | re.S))


def run(name, *, num_ps, workers=2):
    """The outputs of the workers, whose script has to end well."""
    with LocalCluster(num_ps, workers) as ps:
        # One thread: other numbers give other bits.
        scripts = [ps.run(SCRIPTS[name], i, OMP_NUM_THREADS="1") for i in range(workers)]
        for script in scripts:
            if script.wait(200) != 0:
                raise AssertionError(script.output)
        ps.await_end()
        return [script.output for script in scripts]


class QuickstartTest(unittest.TestCase):
    def test_there_is_no_other_block(self):
        with open("docs/python/quickstart.md", encoding="utf-8") as file:
            self.assertEqual(file.read().count("```python"), len(SCRIPTS))

    def test_train(self):
        digests = set()
        for num_ps in (1, 2, 4):
            for output in run("train.py", num_ps=num_ps):
                # examples/fashion_mnist_softmax.textproto: 0.8377 (docs/performance.md).
                accuracy = float(re.search(r"^accuracy (.*)$", output, re.M)[1])
                self.assertAlmostEqual(accuracy, 0.8377, delta=0.002)
                digests.add(re.search(r"^digest (\w{64})$", output, re.M)[1])
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


if __name__ == "__main__":
    unittest.main()
