# SPDX-License-Identifier: Apache-2.0

"""Random sequences of what scripts do end as under plain PyTorch, or are refused."""

import unittest

import torch_sequences

SEED = 1000
SEQUENCES = 50


class SequencesTest(unittest.TestCase):
    def test_sequences(self):
        refused = 0
        for result in torch_sequences.tried(range(SEED, SEED + SEQUENCES)):
            refused += result.refused
            with self.subTest(seed=result.sequence.seed):
                self.assertEqual(result.wrong, "", str(result.sequence))
        # Most train; an error would otherwise look like a refusal.
        self.assertLess(refused, SEQUENCES // 2)

    def test_what_differs_is_found_and_shrunk(self):
        """A world in which an operation acts on Holdfast's side only."""
        kinds = torch_sequences.KINDS

        def one_sided(world, value):
            if not world.side.plain:
                world.layer(0).bias.grad.mul_(value)

        kinds["one_sided"] = torch_sequences.Kind(one_sided, ("graded",), lasts=False)
        self.addCleanup(kinds.pop, "one_sided")
        needed = torch_sequences.Operation(2, "graded", "one_sided", 0.5)
        others = [torch_sequences.Operation(step, "after", "evaluate") for step in range(4)]
        sequence = torch_sequences.Sequence(
            0,
            torch_sequences.Variant(2),
            "dropout",
            "momentum",
            "StepLR",
            2,
            "",
            (*others, needed, *others),
        )
        trial = torch_sequences.Trial()
        self.assertIn("differs", trial.of(sequence))
        shrunk = trial.shrunk(sequence)
        self.assertEqual(shrunk.operations, (needed,))
        self.assertEqual(shrunk.variant, torch_sequences.Variant(1))
        self.assertEqual(
            (shrunk.model, shrunk.optimizer, shrunk.scheduler, shrunk.accumulate),
            ("net", "SGD", "", 1),
        )


if __name__ == "__main__":
    unittest.main()
