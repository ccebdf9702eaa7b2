"""holdfast.examples, run as a user runs them, on the set that the wheel makes."""

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
        # 0.975 by 2 workers; guessing finds a tenth.
        accuracy, digest = self.mnist()
        self.assertGreater(accuracy, 0.95)
        self.assertEqual(self.mnist("--ps=1")[1], digest)

    @unittest.skipUnless(
        os.path.isdir("/usr/share/datasets/fashion-mnist"), "dataset-fashion-mnist is not installed"
    )
    def test_mnist_learns_fashion(self):
        accuracy, _ = self.mnist("--data=fashion", "--steps=300")
        self.assertGreater(accuracy, 0.75)


if __name__ == "__main__":
    unittest.main()
