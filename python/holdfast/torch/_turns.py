"""The turns of a training loop, and the values that they bring into the model."""

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
    """The duty to contribute the gradient of a batch.

    Attributes:
        done: There are no more.
        batch: Index in the training stream.
        step: Step of the values.
        loss_scale: What the loss is multiplied by.
    """

    done: bool
    batch: int
    step: int
    loss_scale: float

    @staticmethod
    def of(loop: Loop) -> Turn:
        """The loop's next turn, which it counts as handed out."""
        turn = loop.take()
        return Turn(bool(turn.done), int(turn.batch), int(turn.step), float(turn.loss_scale))


class Values:
    """Brings what was pulled into the model's tensors.

    Attributes:
        place: Where a loop writes the values: the memory of the tensors themselves, or, for
            those that the library cannot write to, memory beside them.
    """

    def __init__(self, slots: Sequence[Slot]) -> None:
        self._tensors = [slot.tensor for slot in slots]
        self._memory = [_memory_of(slot) for slot in slots]
        self._addresses = [memory.data_ptr() for memory in self._memory]
        self.place = Place((ctypes.c_void_p * len(slots))(*self._addresses), self._memory)

    def load(self, loop: Loop) -> None:
        """Of the loop's turn."""
        if loop.place is not self.place:
            loop.read_into(self.place.pointers)
        written = []
        others = []
        for i, tensor in enumerate(self._tensors):
            # Some programs give a parameter other memory after the optimizer was made.
            if tensor.data_ptr() == self._addresses[i]:
                written.append(tensor)
            else:
                others.append(i)
        # Autograd learns of changes that it has not made itself.
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
