# SPDX-License-Identifier: Apache-2.0

"""holdfast.examples.jax_mnist, and how little a cluster changes in it."""

import ast
import difflib
import re
import tempfile
import unittest

import environments
from environments import ROOT


def code_of(name):
    """The lines of an example without its docstring."""
    with open(f"{ROOT}/python/holdfast/examples/{name}.py", encoding="utf-8") as file:
        text = file.read()
    return text.splitlines()[ast.parse(text).body[0].end_lineno :]


class JaxExampleTest(unittest.TestCase):
    def accuracy(self, said):
        [accuracy] = re.findall(r"^accuracy (0\.\d{4}) on 1000 images$", said, re.M)
        return float(accuracy)

    def test_it_differs_from_a_single_process_in_five_lines(self):
        diff = list(difflib.ndiff(code_of("jax_mnist_single"), code_of("jax_mnist")))
        self.assertLessEqual(len([line for line in diff if line.startswith("+ ")]), 5, diff)

    def test_it_learns(self):
        environment = environments.with_frameworks()
        single = self.accuracy(environment.python("-m", "holdfast.examples.jax_mnist_single"))
        with tempfile.TemporaryDirectory() as folder:
            said = environment.run(
                "holdfast", "local", f"--run_dir={folder}/run", "--",
                "python", "-m", "holdfast.examples.jax_mnist"
            )
        self.assertIn("mnist: done\n", said)
        # 0.965 and 0.955; guessing gets a tenth right.
        self.assertGreater(single, 0.93)
        self.assertGreater(self.accuracy(said), 0.93)


if __name__ == "__main__":
    unittest.main()
