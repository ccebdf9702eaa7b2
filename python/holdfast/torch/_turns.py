"""The turns of a training loop, and the values that they bring into the model."""

from __future__ import annotations

import ctypes
import dataclasses
from collections.abc import Sequence
from typing import Any

import torch

from holdfast._loop import Loop
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
    """Copies what was pulled into the model's tensors."""

    def __init__(self, slots: Sequence[Slot]) -> None:
        self._slots = slots
        self._pointers = (ctypes.c_void_p * len(slots))()
        # Of tensors that the library cannot write to.
        self._staged: dict[int, Any] = {}

    def load(self, loop: Loop) -> None:
        """Of the loop's turn."""
        written = []
        for i, slot in enumerate(self._slots):
            if slot.direct:
                written.append(slot.tensor)
                self._pointers[i] = slot.tensor.data_ptr()
            else:
                self._pointers[i] = self._memory_of(i, slot).data_ptr()
        loop.read_into(self._pointers)
        # Autograd learns of changes that it has not made itself.
        torch.autograd.graph.increment_version(written)
        with torch.no_grad():
            for i, memory in self._staged.items():
                self._slots[i].tensor.copy_(memory)

    def _memory_of(self, i: int, slot: Slot) -> Any:
        memory = self._staged.get(i)
        if memory is None:
            memory = torch.empty(
                slot.tensor.shape, dtype=torch.float32, pin_memory=slot.tensor.is_cuda
            )
            self._staged[i] = memory
        return memory
