# SPDX-License-Identifier: Apache-2.0

"""The scripts of docs/python/jax.md, run by its commands."""

import os
import re
import tempfile
import unittest

import environments
from environments import ROOT

with open(f"{ROOT}/docs/python/jax.md", encoding="utf-8") as _file:
    TEXT = _file.read()
SCRIPTS = dict(re.findall(r"^```python\n# (\S+)\n(.*?)^```$", TEXT, re.M | re.S))
COMMANDS = re.findall(r"^```sh\n(.*?)^```$", TEXT, re.M | re.S)


class JaxDocsTest(unittest.TestCase):
    def test_there_is_no_other_block(self):
        self.assertEqual(TEXT.count("```"), 2 * (len(SCRIPTS) + len(COMMANDS)))

    def test_commands(self):
        said = ""
        with tempfile.TemporaryDirectory() as folder:
            for name, script in SCRIPTS.items():
                with open(os.path.join(folder, name), "w", encoding="utf-8") as file:
                    file.write(script)
            for command in COMMANDS:
                words = command.replace("/tmp/", folder + "/").split()
                said += environments.with_frameworks().run(*words, cwd=folder)
        # Guessing gets a tenth right.
        [accuracy] = re.findall(r"^accuracy (0\.\d+)$", said, re.M)
        self.assertGreater(float(accuracy), 0.9)
        # The variance of a mean of six numbers of variance 1 is 0.17.
        [error] = re.findall(r"^error (\S+)$", said, re.M)
        self.assertLess(float(error), 0.05)
        # Initially the variance of a sum of 16 normal numbers, 16.
        [loss] = re.findall(r"^loss (\S+) on 8 devices$", said, re.M)
        self.assertLess(float(loss), 1)
        # The examples have mean 5 and standard deviation 2.
        self.assertIn("mean [5. 5. 5.] var [4. 4. 4.]\n", said)


if __name__ == "__main__":
    unittest.main()
