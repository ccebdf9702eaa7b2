# SPDX-License-Identifier: Apache-2.0

"""The ranks of a torch.distributed group as one worker of the cluster.

Rank 0 of the group has the connection. Each rank computes one piece of a step's batch; the sum of
the gradients goes to rank 0, which pushes it and distributes the values. Every rank must call the
same methods in the same order, as with torch.distributed.
"""

from __future__ import annotations

import contextlib
import ctypes
import math
from collections.abc import Iterator, Sequence
from typing import Any

import torch

from holdfast._loop import Loop
from holdfast.errors import Unavailable
from holdfast.torch._turns import Turn
from holdfast.torch._variables import Slot

_ALIVE = 1.0

dist = torch.distributed


class Group:
    """This process's place in the group, and a flat copy of all variables for exchanges."""

    def __init__(self, process_group: Any, slots: Sequence[Slot]) -> None:
        self._group = process_group
        self.rank = dist.get_rank(process_group)
        self.size = dist.get_world_size(process_group)
        if self.rank < 0:
            raise ValueError("this process is not a rank of process_group")
        self._root = dist.get_global_rank(process_group, 0)
        self._slots = slots
        on_gpu = dist.get_backend(process_group) == "nccl"
        device = torch.device("cuda", torch.cuda.current_device()) if on_gpu else "cpu"
        self._device = device
        counts = [slot.tensor.numel() for slot in slots]
        # In the memory of the group's device, and in memory that the library reads and writes.
        self._flat = torch.zeros(sum(counts), device=device)
        self._host = torch.zeros(sum(counts), pin_memory=True) if on_gpu else self._flat
        self._pieces = [
            piece.view(slot.tensor.shape)
            for piece, slot in zip(self._flat.split(counts), slots, strict=True)
        ]
        self._pointers = (ctypes.c_void_p * len(slots))()
        begin = self._host.data_ptr()
        for i, count in enumerate(counts):
            self._pointers[i] = begin
            begin += 4 * count
        self._first_parameter = sum(
            count for count, slot in zip(counts, slots, strict=True) if slot.kept is not None
        )

    @property
    def is_root(self) -> bool:
        return bool(self.rank == 0)

    def reduce(self, values: Sequence[Any]) -> None:
        """Adds up gradients and statistics, by variable, at rank 0. None counts as zeros."""
        with torch.no_grad():
            for piece, value in zip(self._pieces, values, strict=True):
                if value is None:
                    piece.zero_()
                else:
                    piece.copy_(value)
        with self._or_unavailable():
            dist.reduce(self._flat, self._root, group=self._group)

    def any_of(self, flags: Sequence[bool]) -> list[bool]:
        """For each flag, whether it is set in any rank, at rank 0."""
        told = torch.tensor(flags, dtype=torch.float32, device=self._device)
        with self._or_unavailable():
            dist.reduce(told, self._root, group=self._group)
        return [count > 0 for count in told.tolist()]

    def pointers(self) -> Any:
        """The addresses of the sums, at rank 0."""
        if self._host is not self._flat:
            self._host.copy_(self._flat)
        return self._pointers

    def norm(self) -> Any:
        """The norm of the sum of the gradients, for every rank."""
        norm = torch.linalg.vector_norm(self._flat[self._first_parameter :])
        with self._or_unavailable():
            dist.broadcast(norm, self._root, group=self._group)
        return norm

    def multiply(self, factor: float) -> None:
        """Multiplies the sum of the gradients, which is at rank 0."""
        self._flat[self._first_parameter :].mul_(factor)

    def loss(self, losses: Sequence[float]) -> float | None:
        """The mean of the ranks' losses, at rank 0."""
        sums = torch.tensor([float(len(losses)), sum(losses)], dtype=torch.float64, device="cpu")
        sums = sums.to(self._device)
        with self._or_unavailable():
            dist.reduce(sums, self._root, group=self._group)
        count, total = sums.tolist()
        return total / count if count else None

    def share(self, turn: Turn, loop: Loop) -> None:
        """Sends a turn and its values to the other ranks."""
        loop.read_into(self._pointers)
        if self._host is not self._flat:
            self._flat.copy_(self._host)
        header = [_ALIVE, float(turn.done), float(turn.batch), float(turn.step), turn.loss_scale]
        with self._or_unavailable():
            self._broadcast_header(header)
            dist.broadcast(self._flat, self._root, group=self._group)
        self._load()

    def give_up(self) -> None:
        """Tells the other ranks that there will be no turn."""
        with contextlib.suppress(RuntimeError):
            self._broadcast_header([0.0] * 5)

    def receive(self) -> Turn:
        """Receives what rank 0 shares."""
        with self._or_unavailable():
            alive, done, batch, step, loss_scale = self._broadcast_header([math.nan] * 5)
            if not alive:
                raise Unavailable("rank 0 of the group, which pushes for all, has given up")
            dist.broadcast(self._flat, self._root, group=self._group)
        self._load()
        return Turn(bool(done), int(batch), int(step), loss_scale)

    def agree(self, number: int) -> int:
        """Distributes rank 0's number to every rank."""
        told = torch.tensor([number], device=self._device)
        with self._or_unavailable():
            dist.broadcast(told, self._root, group=self._group)
        return int(told.item())

    def _broadcast_header(self, header: list[float]) -> list[float]:
        # A float64 holds every integer up to 2^53.
        told = torch.tensor(header, dtype=torch.float64, device=self._device)
        dist.broadcast(told, self._root, group=self._group)
        return [float(value) for value in told.tolist()]

    def _load(self) -> None:
        with torch.no_grad():
            for piece, slot in zip(self._pieces, self._slots, strict=True):
                slot.tensor.copy_(piece)

    @contextlib.contextmanager
    def _or_unavailable(self) -> Iterator[None]:
        try:
            yield
        except Unavailable:
            raise
        except RuntimeError as error:
            raise Unavailable(f"a rank of the group is gone: {error}") from error
