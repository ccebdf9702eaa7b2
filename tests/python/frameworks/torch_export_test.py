# SPDX-License-Identifier: Apache-2.0

"""State dicts from checkpoints."""

import os
import tempfile
import unittest

import numpy as np
import torch

import holdfast
import holdfast.torch


class Tied(torch.nn.Module):
    """Has everything that a state dict can have besides trained parameters."""

    def __init__(self):
        super().__init__()
        self.embedding = torch.nn.Linear(5, 3, bias=False)
        self.norm = torch.nn.BatchNorm1d(3)
        self.frozen = torch.nn.Linear(3, 3).requires_grad_(False)
        self.narrow = torch.nn.Linear(3, 2, dtype=torch.bfloat16)
        self.output = torch.nn.Linear(5, 3, bias=False)
        self.output.weight = self.embedding.weight


TRAINED = {
    "embedding.weight": (3, 5),
    "norm.weight": (3,),
    "norm.bias": (3,),
    "norm.running_mean": (3,),
    "norm.running_var": (3,),
    "narrow.weight": (2, 3),
    "narrow.bias": (2,),
}


def checkpoint(**more):
    random = np.random.default_rng(1)
    shapes = {**TRAINED, **more}
    return holdfast.Checkpoint(
        7, {name: random.standard_normal(shape, np.float32) for name, shape in shapes.items()}
    )


class ExportTest(unittest.TestCase):
    def test_without_a_model(self):
        given = checkpoint()
        state = holdfast.torch.state_dict(given)
        self.assertEqual(list(state), list(TRAINED))
        for name, value in state.items():
            np.testing.assert_array_equal(value.numpy(), given.values[name])
            self.assertEqual(value.dtype, torch.float32)
        given.values["norm.bias"][:] = 0
        self.assertNotEqual(float(state["norm.bias"][0]), 0)

    def test_whole(self):
        torch.manual_seed(1)
        given, trained, other = checkpoint(), Tied(), Tied()
        state = holdfast.torch.state_dict(given, trained)
        self.assertEqual(list(state), list(trained.state_dict()))
        # Checks that every key exists with the right shape: load_state_dict is strict.
        other.load_state_dict(state)
        for name, value in other.state_dict().items():
            if name in given.values:
                wanted = torch.tensor(given.values[name]).to(value.dtype)
            elif name == "output.weight":
                wanted = torch.tensor(given.values["embedding.weight"])
            else:
                wanted = trained.state_dict()[name]
            self.assertTrue(torch.equal(value, wanted), name)
        self.assertEqual(other.narrow.weight.dtype, torch.bfloat16)
        with torch.no_grad():
            trained.frozen.weight.zero_()
        self.assertNotEqual(float(state["frozen.weight"].abs().sum()), 0)

    def test_names_that_variables_cannot_have(self):
        model = torch.nn.Module()
        for name in ("_net", "größe", "a b", "a_b", "x_net"):
            model.register_parameter(name, torch.nn.Parameter(torch.zeros(1)))
        names = ["x_net", "gr__e", "a_b", "a_b-2", "x_net-2"]
        given = checkpoint(**{name: (1,) for name in names})
        for name in TRAINED:
            del given.values[name]
        for compiled in (False, True):
            whole = torch.compile(model, backend="eager") if compiled else model
            state = holdfast.torch.state_dict(given, whole)
            self.assertEqual(
                [value.item() for value in state.values()],
                [given.values[name].item() for name in names],
            )
            self.assertEqual(list(state), list(whole.state_dict()))

    def test_of_another_model(self):
        with self.assertRaisesRegex(ValueError, "Tied has no another.weight"):
            holdfast.torch.state_dict(checkpoint(**{"another.weight": (1,)}), Tied())
        with self.assertRaisesRegex(ValueError, r"norm.bias has shape \(4,\) in the checkpoint"):
            holdfast.torch.state_dict(checkpoint(**{"norm.bias": (4,)}), Tied())

    def test_save(self):
        with tempfile.TemporaryDirectory() as folder:
            path = os.path.join(folder, "state.pt")
            holdfast.torch.save_state_dict(checkpoint(), path)
            state = torch.load(path, weights_only=True)
        self.assertEqual({name: tuple(v.shape) for name, v in state.items()}, TRAINED)


if __name__ == "__main__":
    unittest.main()
