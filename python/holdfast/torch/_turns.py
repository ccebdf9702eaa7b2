# SPDX-License-Identifier: Apache-2.0

"""The turns of a training loop, which update the values of the model."""

from __future__ import annotations

import ctypes
import dataclasses
from collections.abc import Sequence
from typing import Any

import torch

from holdfast._loop import Loop, Place
from holdfast.torch._variables import Slot


@dataclasses.dataclass(frozen=True)
class Turn:
    """A request to contribute the gradient of a batch.

    Attributes:
        done: Whether there are no more turns.
        batch: Index in the training stream.
        step: Step of the values.
        loss_scale: The factor for the loss.
    """

    done: bool
    batch: int
    step: int
    loss_scale: float

    @staticmethod
    def of(loop: Loop) -> Turn:
        """The loop's next turn, which then counts as handed out."""
        turn = loop.take()
        return Turn(bool(turn.done), int(turn.batch), int(turn.step), float(turn.loss_scale))


class Values:
    """Writes pulled values to the model's tensors.

    Attributes:
        place: The memory to which a loop writes the values: that of the tensors themselves or, for
            tensors to which the library cannot write, separate memory.
    """

    def __init__(self, slots: Sequence[Slot]) -> None:
        self._tensors = [slot.tensor for slot in slots]
        self._memory = [_memory_of(slot) for slot in slots]
        self._addresses = [memory.data_ptr() for memory in self._memory]
        self.place = Place((ctypes.c_void_p * len(slots))(*self._addresses), self._memory)

    def load(self, loop: Loop) -> None:
        """Writes the values of the loop's turn."""
        if loop.place is not self.place:
            loop.read_into(self.place.pointers)
        written = []
        others = []
        for i, tensor in enumerate(self._tensors):
            # Some programs change a parameter's memory after the optimizer was created.
            if tensor.data_ptr() == self._addresses[i]:
                written.append(tensor)
            else:
                others.append(i)
        # Notifies autograd of changes that it has not made itself.
        torch.autograd.graph.increment_version(written)
        if others:
            with torch.no_grad():
                for i in others:
                    self._tensors[i].copy_(self._memory[i])


def _memory_of(slot: Slot) -> Any:
    tensor = slot.tensor.detach()
    if slot.direct:
        return tensor
    return torch.empty(tensor.shape, dtype=torch.float32, pin_memory=tensor.is_cuda)
