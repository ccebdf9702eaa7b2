# SPDX-License-Identifier: Apache-2.0

"""What scripts do to their models counts as under plain PyTorch, or is refused by name."""

import os
import unittest

import torch_habits

DOCS = os.path.join(
    os.path.dirname(os.path.abspath(__file__)), *[os.pardir] * 3, "docs", "python", "torch.md"
)


class HabitsTest(unittest.TestCase):
    def test_there_are_many(self):
        names = [habit.name for habit in torch_habits.HABITS]
        self.assertEqual(len(names), len(set(names)))
        self.assertGreaterEqual(len(names), 60)

    def test_each_refusal_is_tested(self):
        used = {habit.refused for habit in torch_habits.HABITS}
        for key, refusal in torch_habits.REFUSALS.items():
            self.assertTrue(key in used or refusal.tested, key)

    def test_the_documentation_has_the_table(self):
        with open(DOCS, encoding="utf-8") as file:
            text = file.read()
        begin, end = torch_habits.MARKERS
        self.assertEqual(text.split(begin)[1].split(end)[0].strip(), torch_habits.table())

    def test_habits(self):
        for results in torch_habits.tried([habit.name for habit in torch_habits.HABITS]):
            for result in results:
                with self.subTest(habit=result.name, variant=str(result.variant)):
                    self.assertEqual(result.wrong, "", result.log)


if __name__ == "__main__":
    unittest.main()
