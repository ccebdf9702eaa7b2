# SPDX-License-Identifier: Apache-2.0

"""docs/strategies.md: what it says in Python is what it says as a job file; its tests exist."""

import os
import re
import unittest

import holdfast
from holdfast import job

PATH = "docs/strategies.md"
with open(PATH, encoding="utf-8") as file:
    TEXT = file.read()
CONFIGURATIONS = re.findall(
    r"^### (.*?)$.*?^```textproto\n(.*?)^```$.*?^```python\n(.*?)^```$", TEXT, re.M | re.S
)


def tokens_of(textproto):
    return re.findall(r"[{}]|[^{}\s]+", textproto)


class StrategiesTest(unittest.TestCase):
    def test_configurations_say_the_same_twice(self):
        self.assertEqual(len(CONFIGURATIONS), TEXT.count("```python"))
        for name, as_text, as_python in CONFIGURATIONS:
            with self.subTest(name):
                arguments = eval(f"dict({as_python})", {"holdfast": holdfast})
                messages = [
                    job.field_text(field, value, is_enum=isinstance(value, str))
                    for field, value in arguments.items()
                ]
                # The default, which Python writes out.
                said = " ".join(messages).replace("aggregation: MEAN", "")
                self.assertEqual(tokens_of(said), tokens_of(as_text))

    def test_tests_exist(self):
        # Next to the file itself, to which the test was given a link.
        folder = os.path.dirname(os.path.realpath(PATH))
        count = 0
        for cell in re.findall(r"\| ([^|]*) \|$", TEXT, re.M):
            # Links to tests, each with the cases that follow it.
            for link, cases in re.findall(r"\[\w+\]\(([^)#]*)\)([^\[]*)", cell):
                with open(os.path.join(folder, link), encoding="utf-8") as file:
                    text = file.read()
                for case in re.findall(r"`(\w+)`", cases):
                    self.assertRegex(text, rf"\b{case}(_[A-Z]\d+)*\b", link)
                    count += 1
        self.assertGreater(count, 25)


if __name__ == "__main__":
    unittest.main()
