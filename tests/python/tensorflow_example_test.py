# SPDX-License-Identifier: Apache-2.0

"""examples/tensorflow, on the digits that the wheel generates."""

import re
import tempfile
import unittest

import environments
from environments import ROOT


class TensorflowExampleTest(unittest.TestCase):
    def run_example(self, *flags):
        """(accuracy, digest) that it prints."""
        with tempfile.TemporaryDirectory() as folder:
            said = environments.with_frameworks().run(
                "holdfast", "local", *flags, f"--run_dir={folder}/run", "--",
                "python", f"{ROOT}/examples/tensorflow/mnist.py"
            )
        self.assertIn("mnist: done\n", said)
        [accuracy] = re.findall(r"^accuracy (0\.\d{4}) on 1000 images$", said, re.M)
        [digest] = re.findall(r"^digest ([0-9a-f]{64})$", said, re.M)
        return float(accuracy), digest

    def test_it_learns_the_same_on_any_number_of_ps(self):
        # Guessing gets a tenth right.
        accuracy, digest = self.run_example("--ps=2", "--workers=2")
        self.assertGreater(accuracy, 0.95)
        self.assertEqual(self.run_example("--ps=1", "--workers=2")[1], digest)


if __name__ == "__main__":
    unittest.main()
