# SPDX-License-Identifier: Apache-2.0

"""Two groups of two ranks: each group is one worker of the cluster."""

import unittest

from local_cluster import LocalCluster, unused_addresses

SCRIPT = """
    import json, os
    import torch
    import holdfast, holdfast.torch

    torch.distributed.init_process_group("gloo")
    torch.manual_seed(1 + torch.distributed.get_rank())  # worker 0's values count
    model = torch.nn.Sequential(
        torch.nn.Linear(6, 5), torch.nn.BatchNorm1d(5), torch.nn.Tanh(), torch.nn.Linear(5, 3))
    x = torch.arange(240, dtype=torch.float32).reshape(40, 6).sin()
    data = torch.utils.data.TensorDataset(x, x[:, :3].argmax(dim=1))

    opt = holdfast.torch.Optimizer(
        model, torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.5), steps=12, seed=3,
        accumulate=2, process_group=torch.distributed.group.WORLD,
        checkpoints=holdfast.Checkpoints(every_steps=3))
    norms = []
    for x, y in opt.batches(data, 5):
        opt.zero_grad()
        loss = torch.nn.functional.cross_entropy(model(x), y)
        loss.backward()
        norms.append(float(opt.clip_grad_norm(100.0)))
        opt.step(loss)
        print("step", flush=True)
    values = {name: value.tolist() for name, value in model.state_dict().items()
              if value.dtype == torch.float32}
    print(json.dumps({"values": values, "norm": norms[-1], "connected": opt.cluster is not None}))
"""


# Clips in the way of plain PyTorch, which would clip each rank's own gradient.
CLIPS = """
    import torch
    import holdfast, holdfast.torch

    torch.distributed.init_process_group("gloo")
    torch.manual_seed(1)
    model = torch.nn.Linear(6, 3)
    opt = holdfast.torch.Optimizer(
        model, torch.optim.SGD(model.parameters(), lr=0.1), steps=12,
        process_group=torch.distributed.group.WORLD)
    first = model.weight.detach().clone()
    for rows in opt.batches(range(40), 5):
        opt.zero_grad()
        model(torch.randn(5, 6)).square().mean().backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 0.001)
        try:
            opt.step()
        except holdfast.Error as error:
            print(error)
        opt.finish()
    print("unchanged" if torch.equal(model.weight, first) else "trained")
"""


def alone():
    """PyTorch's result for the same batches: 2 groups x 2 ranks x 2 passes x 5 examples."""
    import torch

    import holdfast

    torch.manual_seed(1)
    model = torch.nn.Sequential(
        torch.nn.Linear(6, 5), torch.nn.BatchNorm1d(5), torch.nn.Tanh(), torch.nn.Linear(5, 3))
    x = torch.arange(240, dtype=torch.float32).reshape(40, 6).sin()
    y = x[:, :3].argmax(dim=1)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.5)
    norm = model[1]
    for step in range(12):
        optimizer.zero_grad()
        before = norm.running_mean.clone(), norm.running_var.clone()
        sums = torch.zeros(5), torch.zeros(5)
        for group in range(2):
            rows = torch.from_numpy(holdfast.batch_indices(2 * step + group, 40, 20, 3))
            for rank in range(2):
                norm.running_mean.copy_(before[0])
                norm.running_var.copy_(before[1])
                for piece in rows[10 * rank : 10 * rank + 10].split(5):
                    loss = torch.nn.functional.cross_entropy(model(x[piece]), y[piece])
                    (loss / 8).backward()
                sums[0].add_(norm.running_mean / 4)
                sums[1].add_(norm.running_var / 4)
        norm.running_mean.copy_(sums[0])
        norm.running_var.copy_(sums[1])
        optimizer.step()
    return model.state_dict()


class GroupTest(unittest.TestCase):
    def train(self, *, kill_ps=False, kill_rank=None):
        with LocalCluster(2, 2, flags=("--lease=2s",)) as ps:
            scripts = []
            for worker in range(2):
                scripts += self.start(ps, worker)
            if kill_ps:
                scripts[0].await_output("step\nstep\n" * 5)
                ps.kill_ps(0)
            if kill_rank is not None:
                scripts[0].await_output("step\nstep\n" * 5)
                scripts[kill_rank].process.kill()
                # The other rank notices, and exits with a code that causes both to be restarted.
                other = scripts[kill_rank ^ 1]
                self.assertEqual(other.wait(), 138, other.output)
                self.assertIn("Unavailable", other.output)
                worker = kill_rank // 2
                scripts[2 * worker : 2 * worker + 2] = self.start(ps, worker)
            results = [script.result() for script in scripts]
            ps.await_end()
        self.assertEqual([r.pop("connected") for r in results], [True, False] * 2)
        for result in results[1:]:
            self.assertEqual(result["values"], results[0]["values"])
        self.assertEqual(results[0]["norm"], results[1]["norm"])
        return results[0]["values"]

    def start(self, ps, worker, script=SCRIPT):
        """Starts the ranks of a worker."""
        port = unused_addresses(1)[0].rsplit(":", 1)[1]
        return [
            ps.run(
                script, worker, OMP_NUM_THREADS="1", RANK=str(rank), WORLD_SIZE="2",
                MASTER_ADDR="127.0.0.1", MASTER_PORT=port, GLOO_SOCKET_IFNAME="lo",
            )
            for rank in range(2)
        ]

    def test_clipping_in_a_rank_is_refused(self):
        with LocalCluster(1) as ps:
            for script in self.start(ps, 0, CLIPS):
                self.assertEqual(script.wait(), 0, script.output)
                self.assertRegex(script.output, 'gradient of "(weight|bias)" was changed after the back')
                self.assertIn("unchanged", script.output)
            ps.await_end()

    def test_is_pytorch_alone(self):
        import torch

        values = self.train()
        for name, expected in alone().items():
            if name.endswith("num_batches_tracked"):
                continue
            torch.testing.assert_close(torch.tensor(values[name]), expected, rtol=1e-5, atol=1e-5)
        self.assertEqual(self.train(kill_ps=True), values)
        for rank in (2, 3):
            self.assertEqual(self.train(kill_rank=rank), values)


if __name__ == "__main__":
    unittest.main()
