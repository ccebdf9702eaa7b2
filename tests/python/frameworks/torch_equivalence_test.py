# SPDX-License-Identifier: Apache-2.0

"""Two workers with 100 examples each, against PyTorch with 200, and against its DDP."""

import os
import subprocess
import sys
import tempfile
import textwrap
import unittest

import torch
from local_cluster import LocalCluster
from torch_digits import (
    SIZE,
    WORKERS,
    loss_of,
    make_model,
    make_optimizer,
    state_of,
    weighted_loss_of,
)

import holdfast
import holdfast.torch

FOLDER = os.path.dirname(os.path.abspath(__file__))
STEPS = 100

# The examples are their indices, so that the test knows which worker took which.
WORKER = """
    import os
    import torch
    import holdfast.torch
    import torch_digits

    torch.set_num_threads(1)
    model = torch_digits.make_model()
    optimizer = holdfast.torch.Optimizer(
        model, torch_digits.make_optimizer(model, os.environ["OPTIMIZER"]),
        steps=int(os.environ["STEPS"]),
    )
    rows, states = [], []
    for batch in optimizer.batches(range(torch_digits.EXAMPLES), torch_digits.SIZE):
        optimizer.zero_grad()
        if "WEIGHTED" in os.environ:
            loss, weight = torch_digits.weighted_loss_of(model, batch)
            loss.backward()
            optimizer.step(loss, examples=int(4 * weight))
        else:
            loss = torch_digits.loss_of(model, batch)
            loss.backward()
            optimizer.step(loss)
        rows.append(batch)
        states.append(torch_digits.state_of(model))
    torch.save({"rows": rows, "states": states}, os.environ["RESULT"])
"""

DDP = """
    import os
    import torch
    import torch_digits

    torch.set_num_threads(1)
    rank = int(os.environ["RANK"])
    torch.distributed.init_process_group(
        "gloo", init_method="file://" + os.environ["MEETING"], rank=rank,
        world_size=torch_digits.WORKERS,
    )
    results = {}
    for name, rows_of_steps in torch.load(os.environ["ROWS"]).items():
        model = torch_digits.make_model()
        parallel = torch.nn.parallel.DistributedDataParallel(model)
        optimizer = torch_digits.make_optimizer(model, name)
        gradients, states = [], []
        for rows in rows_of_steps:
            optimizer.zero_grad()
            torch_digits.loss_of(parallel, rows).backward()
            optimizer.step()
            gradients.append({name: p.grad.clone() for name, p in model.named_parameters()})
            states.append(torch_digits.state_of(model))
        results[name] = {"gradients": gradients, "states": states}
    torch.save(results, os.environ["RESULT"])
    # PyTorch aborts at its end once in 30 runs ("terminate called without an active exception").
    torch.distributed.barrier()
    os._exit(0)
"""


def trained_by_workers(name, steps, **environment):
    """For each worker, the rows of its batches and the states after its steps."""
    path = f"{FOLDER}:{os.environ['PYTHONPATH']}"
    with LocalCluster(2, WORKERS) as ps, tempfile.TemporaryDirectory() as folder:
        results = [f"{folder}/{i}.pt" for i in range(WORKERS)]
        scripts = [
            ps.run(
                WORKER,
                i,
                OPTIMIZER=name,
                STEPS=str(steps),
                RESULT=results[i],
                PYTHONPATH=path,
                **environment,
            )
            for i in range(WORKERS)
        ]
        for script in scripts:
            if script.wait(200) != 0:
                raise AssertionError(script.output)
        ps.await_end()
        return [torch.load(result) for result in results]


def trained_alone(name, batches, *, accumulated):
    """The states after steps on all workers' batches, at once or one after the other."""
    model = make_model()
    optimizer = make_optimizer(model, name)
    states = []
    for rows in batches:
        optimizer.zero_grad()
        if accumulated:
            for part in rows:
                (loss_of(model, part) / len(rows)).backward()
        else:
            loss_of(model, torch.cat(rows)).backward()
        optimizer.step()
        states.append(state_of(model))
    return states


def difference(a, b):
    """The difference relative in norm, keyed by variable."""
    return {name: float((a[name] - b[name]).norm() / b[name].norm()) for name in b}


def flat(state):
    return {"all": torch.cat([value.flatten() for value in state.values()])}


class EquivalenceTest(unittest.TestCase):
    def compare(self, name):
        torch.set_num_threads(1)
        workers = trained_by_workers(name, STEPS)
        batches = list(zip(*(worker["rows"] for worker in workers), strict=True))
        self.assertEqual({len(part) for rows in batches for part in rows}, {SIZE})
        self.assertEqual(len(batches), STEPS)
        states = workers[0]["states"]
        for one, other in zip(states, workers[1]["states"], strict=True):
            self.assertEqual(difference(one, other), dict.fromkeys(one, 0.0))

        alone = trained_alone(name, batches, accumulated=False)
        accumulated = trained_alone(name, batches, accumulated=True)
        for variable, after_1 in difference(states[0], alone[0]).items():
            self.assertLessEqual(after_1, 1e-6, variable)
        [after_all] = difference(flat(states[-1]), flat(alone[-1])).values()
        [torchs_own] = difference(flat(accumulated[-1]), flat(alone[-1])).values()
        print(f"{name}: {after_all:.2g} after {STEPS} steps, torch itself {torchs_own:.2g}")
        self.assertGreater(torchs_own, 0)
        self.assertLessEqual(after_all, 2 * torchs_own)

    def test_momentum(self):
        self.compare("momentum")

    def test_nesterov(self):
        self.compare("nesterov")

    def test_adam(self):
        self.compare("adam")

    def test_adamw(self):
        self.compare("adamw")

    def test_adagrad(self):
        self.compare("adagrad")

    def test_rmsprop(self):
        self.compare("rmsprop")


class WeightsTest(unittest.TestCase):
    def test_the_mean_over_all_examples_is_weighted(self):
        workers = trained_by_workers("momentum", 5, WEIGHTED="1")
        model = make_model()
        optimizer = make_optimizer(model, "momentum")
        for step, rows in enumerate(zip(*(worker["rows"] for worker in workers), strict=True)):
            optimizer.zero_grad()
            weighted_loss_of(model, torch.cat(rows))[0].backward()
            optimizer.step()
            for variable, far in difference(workers[0]["states"][step], state_of(model)).items():
                self.assertLessEqual(far, 1e-6, variable)
        # The mean of the batches' means would be different.
        sums = {float(weighted_loss_of(model, part)[1]) for part in rows}
        self.assertEqual(len(sums), 2)

    def test_refused(self):
        for accumulate, examples, error in (
            (2, 3, "passes that are added up count by their size"),
            (1, 2.5, "examples is 2.5; it must be an int"),
            (1, True, "examples is True; it must be an int"),
            (1, -1, "examples is -1; it must be from 0 to 1000000000000"),
            (1, 2**64 + 3, "it must be from 0 to 1000000000000"),
        ):
            with LocalCluster() as ps, holdfast.connect(**ps.task()) as cluster:
                model = make_model()
                optimizer = holdfast.torch.Optimizer(
                    model,
                    make_optimizer(model, "exact"),
                    steps=1,
                    cluster=cluster,
                    accumulate=accumulate,
                )
                for rows in optimizer.batches(range(10), 2):
                    loss_of(model, rows).backward()
                    with self.assertRaisesRegex((TypeError, ValueError), error):
                        optimizer.step(examples=examples)
                    optimizer.skip()


class DistributedDataParallelTest(unittest.TestCase):
    """The mean of two gradients of equal weight has DDP's bits, and a step has torch's if no product
    in it is rounded: torch multiplies and adds with one rounding (FMA), a ps with two.
    """

    STEPS = 10
    EXACT = ("exact", "exact momentum")
    ROUNDED = "momentum"

    @classmethod
    def setUpClass(cls):
        torch.set_num_threads(1)
        names = (*cls.EXACT, cls.ROUNDED)
        cls.workers = {name: trained_by_workers(name, cls.STEPS) for name in names}
        with tempfile.TemporaryDirectory() as folder:
            ranks = []
            for rank in range(WORKERS):
                rows = {name: results[rank]["rows"] for name, results in cls.workers.items()}
                torch.save(rows, f"{folder}/rows{rank}.pt")
                environment = {
                    "RANK": str(rank),
                    "MEETING": f"{folder}/meeting",
                    "ROWS": f"{folder}/rows{rank}.pt",
                    "RESULT": f"{folder}/{rank}.pt",
                    "PYTHONPATH": f"{FOLDER}:{os.environ['PYTHONPATH']}",
                    "GLOO_SOCKET_IFNAME": "lo",
                }
                ranks.append(
                    subprocess.Popen(
                        [sys.executable, "-c", textwrap.dedent(DDP)],
                        env={**os.environ, **environment},
                    )
                )
            for rank in ranks:
                if rank.wait(200) != 0:
                    raise AssertionError("a rank of DDP has failed")
            cls.parallel = [torch.load(f"{folder}/{rank}.pt") for rank in range(WORKERS)]

    def check_first_gradient(self, name):
        """From equal values both have the same mean, and a ps makes the step that is declared."""
        optimizer = make_optimizer(make_model(), name)
        rate = torch.tensor(optimizer.param_groups[0]["lr"])  # float32
        before = state_of(make_model())
        for variable, value in self.workers[name][0]["states"][0].items():
            for result in self.parallel:
                gradient = result[name]["gradients"][0][variable]
                self.assertTrue(torch.equal(value, before[variable] - rate * gradient), variable)

    def test_same_bits(self):
        """All of their rates are a power of two."""
        for name in self.EXACT:
            self.check_first_gradient(name)
            for step, state in enumerate(self.workers[name][0]["states"]):
                for variable, value in state.items():
                    for result in self.parallel:
                        equal = torch.equal(value, result[name]["states"][step][variable])
                        self.assertTrue(equal, (name, step, variable))

    def test_other_rates(self):
        name = self.ROUNDED
        self.check_first_gradient(name)
        states = self.workers[name][0]["states"]
        for result in self.parallel:
            steps = result[name]["states"]
            for variable, value in states[0].items():
                # What the second rounding changes: half a unit in the last place of the product,
                # which is smaller than the value, and as much of the value.
                unit = torch.finfo(torch.float32).eps * float(value.abs().max())
                far = float((value - steps[0][variable]).abs().max())
                self.assertLessEqual(far, unit, variable)
            for variable, far in difference(states[-1], steps[-1]).items():
                print(f"{name}: {variable} {far:.2g} after {self.STEPS} steps")
                self.assertLessEqual(far, 1e-6, variable)


if __name__ == "__main__":
    unittest.main()
