# SPDX-License-Identifier: Apache-2.0

"""The turns of a training loop, which update the values of the model."""

from __future__ import annotations

import ctypes
import dataclasses
from collections.abc import Callable, Sequence
from typing import Any

import torch

from holdfast._loop import Loop, Place
from holdfast.errors import Error
from holdfast.torch._prints import Print, changed, prints_of
from holdfast.torch._variables import Slot


@dataclasses.dataclass(frozen=True)
class Turn:
    """A request to contribute the gradient of a batch.

    Attributes:
        done: Whether there are no more turns.
        batch: Index in the training stream.
        step: Step of the values.
        loss_scale: The factor for the loss.
        number: The turn's number in this process's loop; -1 in ranks without a loop.
    """

    done: bool
    batch: int
    step: int
    loss_scale: float
    number: int = -1

    @staticmethod
    def of(loop: Loop) -> Turn:
        """The loop's next turn, which then counts as handed out."""
        turn = loop.take()
        return Turn(
            bool(turn.done),
            int(turn.batch),
            int(turn.step),
            float(turn.loss_scale),
            int(turn.number),
        )


class Values:
    """Writes pulled values to the model's tensors, and notices if the script writes to them.

    Attributes:
        place: The memory to which a loop writes the values: that of the tensors themselves or, for
            tensors to which the library cannot write, separate memory.
    """

    def __init__(self, slots: Sequence[Slot]) -> None:
        self._slots = slots
        # Of all variables as they were declared; later, of the parameters as they were loaded.
        self._watched = list(slots)
        self._prints: list[Print] = self._of_declared()
        self._find_place()

    def _find_place(self) -> None:
        self._memory = [_memory_of(slot) for slot in self._slots]
        self._addresses = [memory.data_ptr() for memory in self._memory]
        pointers = (ctypes.c_void_p * len(self._slots))(*self._addresses)
        self.place = Place(pointers, self._memory)

    def _of_declared(self) -> list[Print]:
        # A model may be moved to its device after the optimizer was made.
        return prints_of([slot.tensor.detach().cpu() for slot in self._slots])

    def _of_loaded(self) -> list[Print]:
        return prints_of([slot.tensor for slot in self._watched])

    def _changed(self, now: Callable[[], list[Print]]) -> str:
        """The name of a tensor that was written to; empty if there is none."""
        for slot in self._watched:
            if slot.tensor.device.type == "meta":
                return slot.key
        different = changed(self._prints, now())
        return self._watched[different[0]].key if different else ""

    def check_declared(self) -> None:
        """Refuses a model that has changed since it was declared; called before the loop begins.

        Raises:
            Error: The error names the tensor.
        """
        name = self._changed(self._of_declared)
        if name:
            raise Error(
                f'"{name}" was changed after holdfast.torch.Optimizer was made, which gave the '
                "cluster its first values: load and change the model's parameters before that"
            )
        # It may have been moved meanwhile.
        self._find_place()

    def check_loaded(self) -> None:
        """Refuses parameters that are not those that the cluster has handed out.

        Raises:
            Error: The error names the parameter.
        """
        # The library writes to this memory, which its owner has moved in place.
        for slot, memory, address in zip(self._slots, self._memory, self._addresses, strict=True):
            if memory.data_ptr() != address:
                raise Error(
                    f'the memory of "{slot.key}" was moved, as share_memory() does, while the '
                    "cluster writes values to it: move it before the loop begins"
                )
        name = self._changed(self._of_loaded)
        if name:
            raise Error(
                f'"{name}" was written to since the last step, but its values are the cluster\'s, '
                "and the next step would overwrite it: restore it before step(), or express the "
                "change in the model, such as by torch.nn.utils.parametrize, or in the gradient"
            )

    def load(self, loop: Loop) -> None:
        """Writes the values of the loop's turn."""
        if loop.place is not self.place:
            loop.read_into(self.place.pointers)
        written = []
        others = []
        for i, slot in enumerate(self._slots):
            tensor = slot.tensor
            # Some programs change a tensor's memory or type after the optimizer was created.
            if tensor.data_ptr() == self._addresses[i] and tensor.dtype is torch.float32:
                written.append(tensor)
            else:
                others.append((tensor, self._memory[i]))
        # Notifies autograd of changes that it has not made itself.
        torch.autograd.graph.increment_version(written)
        # A Ctrl-C at the end of torch.no_grad() would leave autograd disabled.
        for tensor, memory in others:
            tensor.detach().copy_(memory)
        self.loaded()

    def loaded(self) -> None:
        """Called when the model has the values of a turn."""
        self._watched = [slot for slot in self._slots if slot.kept is None]
        self._prints = self._of_loaded()


def _memory_of(slot: Slot) -> Any:
    tensor = slot.tensor.detach()
    if slot.direct:
        return tensor
    return torch.empty(tensor.shape, dtype=torch.float32, device="cpu", pin_memory=tensor.is_cuda)
