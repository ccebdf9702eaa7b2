# SPDX-License-Identifier: Apache-2.0

"""Rows in PyTorch and NumPy within one process, with one thread: the limit.

Nothing is transferred: a pull is an index_select of the table, a push an index_add_. A "batch" is
what a training step with EmbeddingBag(sparse=True) does besides its arithmetic: forward, backward
and SGD.
"""

import numpy as np
import rows
import torch

PEER = "in_process"


def main():
    flags = rows.parser().parse_args()
    torch.set_num_threads(1)
    batches = rows.Batches(flags)
    count = batches.num_unique
    bag = torch.nn.EmbeddingBag(
        flags.rows, flags.row_length, mode="sum", sparse=True,
        # Filled, so that the table is backed by memory.
        _weight=torch.full((flags.rows, flags.row_length), 0.5))
    table = bag.weight.detach()
    unique = [torch.from_numpy(ids) for ids in batches.unique]
    ids_of_bags = [torch.from_numpy(ids).view(-1, 1) for ids in batches.all]
    inverse = [np.unique(ids, return_inverse=True) for ids in batches.all]
    inverse = [(len(ids), torch.from_numpy(places.reshape(-1))) for ids, places in inverse]
    gradients = torch.rand(flags.ids, flags.row_length)
    optimizer = torch.optim.SGD(bag.parameters(), lr=rows.LEARNING_RATE)

    def push(number):
        table.index_add_(0, unique[number], gradients[:count], alpha=-rows.LEARNING_RATE)

    def add_up(number):
        length, places = inverse[number]
        torch.zeros(length, flags.row_length).index_add_(0, places, gradients)

    def train(number):
        optimizer.zero_grad()
        bag(ids_of_bags[number]).backward(gradients)
        optimizer.step()

    for name, num_rows, operation in (
            ("push", count, push),
            ("pull", count, lambda number: table.index_select(0, unique[number])),
            ("assign", flags.ids, lambda number: np.unique(batches.all[number],
                                                           return_inverse=True)),
            ("sum", flags.ids, add_up),
            ("spread", flags.ids, lambda number: gradients.index_select(0, inverse[number][1])),
            ("batch", flags.ids, train)):
        rows.report(PEER, name, flags, num_rows, lambda: operation(batches.next()))


if __name__ == "__main__":
    main()
