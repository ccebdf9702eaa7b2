# SPDX-License-Identifier: Apache-2.0

"""PyTorch's DistributedDataParallel over gloo: 2 processes, no server."""

import argparse

import harness

PEER = "pytorch_ddp"


def train(model_name, index, path):
    import torch
    import torch.distributed as dist

    torch.set_num_threads(1)
    dist.init_process_group("gloo", rank=index, world_size=harness.WORKERS)
    widths, learning_rate, momentum = harness.MODELS[model_name]
    layers = []
    for inputs, outputs in zip(widths, widths[1:]):
        layers += [torch.nn.Linear(inputs, outputs), torch.nn.ReLU()]
    model = torch.nn.parallel.DistributedDataParallel(
        torch.nn.Sequential(*layers[:-1]),
        broadcast_buffers=False,
        gradient_as_bucket_view=True,
        static_graph=True)
    optimizer = torch.optim.SGD(model.parameters(), learning_rate, momentum, fused=True)
    steps = harness.Steps(path)
    for images, labels in harness.batches(index):
        logits = model(torch.from_numpy(images))
        loss = torch.nn.functional.cross_entropy(logits, torch.from_numpy(labels).long())
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        steps.add(index)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--measures", default="softmax_sync,mlp_sync")
    parser.add_argument("--role")
    parser.add_argument("--index", type=int)
    parser.add_argument("--model")
    parser.add_argument("--steps")
    flags = parser.parse_args()
    if flags.role:
        train(flags.model, flags.index, flags.steps)
        return
    for measure in flags.measures.split(","):
        model = measure.split("_")[0]
        environment = {
            "MASTER_ADDR": "localhost",
            "MASTER_PORT": str(harness.free_port()),
            "GLOO_SOCKET_IFNAME": "lo",
            "OMP_NUM_THREADS": "1",
        }
        with harness.steps_file() as steps, harness.Processes() as processes:
            for index in range(harness.WORKERS):
                processes.start("worker", index, environment, model=model, steps=steps)
            harness.report_training(PEER, measure, processes, steps)


if __name__ == "__main__":
    main()
