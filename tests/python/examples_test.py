# SPDX-License-Identifier: Apache-2.0

"""holdfast.examples, run as a user runs them, on the data set that the wheel generates."""

import ast
import difflib
import os
import re
import tempfile
import unittest

import environments


class ExamplesTest(unittest.TestCase):
    def mnist(self, *arguments):
        """(accuracy, digest) that it prints."""
        with tempfile.TemporaryDirectory() as folder:
            said = environments.with_frameworks().python(
                "-m", "holdfast.examples.mnist", f"--run_dir={folder}/run", *arguments
            )
        self.assertIn("mnist: done\n", said)
        [accuracy] = re.findall(r"^accuracy (0\.\d{4}) on ", said, re.M)
        [digest] = re.findall(r"^digest ([0-9a-f]{64})$", said, re.M)
        return float(accuracy), digest

    def test_mnist_learns_digits(self):
        # 0.975 with 2 workers; guessing gets a tenth right.
        accuracy, digest = self.mnist()
        self.assertGreater(accuracy, 0.95)
        self.assertEqual(self.mnist("--ps=1")[1], digest)

    @unittest.skipUnless(
        os.path.isdir("/usr/share/datasets/fashion-mnist"), "dataset-fashion-mnist is not installed"
    )
    def test_mnist_learns_fashion(self):
        accuracy, _ = self.mnist("--data=fashion", "--steps=300")
        self.assertGreater(accuracy, 0.75)


class TorchTest(unittest.TestCase):
    def test_torch_mnist(self):
        environment = environments.with_frameworks()
        digests = set()
        for num_ps in (1, 2, 4):
            with tempfile.TemporaryDirectory() as folder:
                said = environment.run(
                    "holdfast", "local", f"--ps={num_ps}", "--workers=2", f"--run_dir={folder}/run",
                    "--", "python", "-m", "holdfast.examples.torch_mnist",
                )
                digests.add(environment.python("-c", _DIGEST, f"{folder}/run/checkpoints"))
            [accuracy] = re.findall(r"^accuracy (0\.\d{4}) on ", said, re.M)
            # As accurate as the script in one process, below.
            self.assertGreater(float(accuracy), 0.95)
        self.assertEqual(len(digests), 1)

    def test_torch_mnist_single(self):
        said = environments.with_frameworks().python("-m", "holdfast.examples.torch_mnist_single")
        [accuracy] = re.findall(r"^accuracy (0\.\d{4}) on ", said, re.M)
        self.assertGreater(float(accuracy), 0.95)

    def test_they_differ_in_five_lines(self):
        single, cluster = (
            _code(f"{environments.ROOT}/python/holdfast/examples/{name}.py")
            for name in ("torch_mnist_single", "torch_mnist")
        )
        changed = [line for line in difflib.ndiff(single, cluster) if line.startswith("+ ")]
        self.assertLessEqual(len(changed), 5, changed)
        # Only lines that were changed are removed.
        gone = [line for line in difflib.ndiff(single, cluster) if line.startswith("- ")]
        self.assertLessEqual(len(gone), len(changed), gone)


_DIGEST = """
import sys, holdfast
print(holdfast.digest(holdfast.load_checkpoint(sys.argv[1]).values))
"""


def _code(path):
    """The lines of a script after its docstring."""
    with open(path, encoding="utf-8") as file:
        text = file.read()
    end = ast.parse(text).body[0].end_lineno
    return text.splitlines()[end:]


if __name__ == "__main__":
    unittest.main()
