# SPDX-License-Identifier: Apache-2.0

"""Passes gradients from backward passes to the cluster: their memory, and when to send them."""

from __future__ import annotations

import ctypes
from collections.abc import Sequence
from typing import Any

import torch

from holdfast._loop import Loop
from holdfast.errors import Error
from holdfast.torch._variables import Slot


def _is_on_gpu(gradient: Any) -> bool:
    return bool(gradient.is_cuda)


def _pinned_memory(gradient: Any) -> Any:
    return torch.empty(gradient.shape, dtype=torch.float32, pin_memory=True)


def _start_copy(memory: Any, gradient: Any) -> Any:
    """Starts a copy, and returns an event that says when it is complete.

    Narrower types are widened on the GPU. Everything runs in the stream of the backward pass.
    """
    with torch.cuda.device(gradient.device):
        memory.copy_(gradient.float(), non_blocking=True)
        event = torch.cuda.Event()
        event.record()
    return event


class Gradients:
    """The gradients of one turn, and the memory that the cluster reads them from.

    With ``overlap``, hooks hand a gradient in as soon as a backward pass has made it, and the
    library sends it while the pass goes on. Its memory must not change until the turn is over,
    which is checked by the tensor's version.

    There is only one turn at a time; the hooks are called by autograd's threads.
    """

    def __init__(self, slots: Sequence[Slot], *, overlap: bool) -> None:
        self._slots = slots
        self._parameters = [(i, slot) for i, slot in enumerate(slots) if slot.kept is None]
        self._statistics = [(i, slot) for i, slot in enumerate(slots) if slot.kept is not None]
        self._pointers = (ctypes.c_void_p * len(slots))()
        # The factor for the sum of a turn's backward passes.
        self.scale = 1.0
        self._scaled = False
        # Whether the backward pass hands its gradients in as it makes them.
        self.loop: Loop | None = None
        # By variable, the tensors that were handed in, with their versions.
        self._sent: dict[int, tuple[Any, int]] = {}
        # Copies from a GPU that may still be in progress: (event, variable, memory).
        self._copying: list[tuple[Any, int, Any]] = []
        # Memory that the library reads until the turn is over.
        self._lent: list[Any] = []
        self._pinned: dict[int, Any] = {}
        self._zeros: Any = None
        if overlap:
            for i, slot in self._parameters:
                slot.tensor.register_post_accumulate_grad_hook(self._hook(i, slot))

    def _hook(self, i: int, slot: Slot) -> Any:
        def on_gradient(parameter: Any) -> None:
            if self.loop is not None:
                self._send(self.loop, i, slot, parameter.grad)

        return on_gradient

    def _send(self, loop: Loop, i: int, slot: Slot, gradient: Any) -> None:
        if i in self._sent:
            raise Error(
                f'a second backward pass changed the gradient of "{slot.name}", which was being '
                "sent: make the optimizer with accumulate=, or with overlap=False"
            )
        self._check(slot, gradient)
        if self.scale != 1.0:
            gradient.mul_(self.scale)
        self._sent[i] = (gradient, gradient._version)
        for ready, memory in self._memory_of(i, gradient):
            loop.add_from(ready, memory.data_ptr())

    def _memory_of(self, i: int, gradient: Any) -> list[tuple[int, Any]]:
        """Returns gradients in memory that the library can read, as (variable, memory).

        Gradients on a GPU are copied to pinned memory, which takes time; others may be ready first.
        """
        gradient = gradient.detach()
        if not _is_on_gpu(gradient):
            return [(i, self._keep(gradient.to("cpu", torch.float32).contiguous()))]
        memory = self._pinned.get(i)
        if memory is None:
            memory = _pinned_memory(gradient)
            self._pinned[i] = memory
        self._copying.append((_start_copy(memory, gradient), i, memory))
        return self._copied(wait=False)

    def _copied(self, *, wait: bool) -> list[tuple[int, Any]]:
        ready = []
        rest = []
        for event, i, memory in self._copying:
            if wait:
                event.synchronize()
            if wait or event.query():
                ready.append((i, memory))
            else:
                rest.append((event, i, memory))
        self._copying = rest
        return ready

    def _keep(self, memory: Any) -> Any:
        self._lent.append(memory)
        return memory

    def _check(self, slot: Slot, gradient: Any) -> None:
        if gradient.layout is not torch.strided:
            raise TypeError(
                f'the gradient of "{slot.name}" is sparse: the cluster adds dense gradients; make '
                "the layer with sparse=False"
            )

    def all(self) -> list[Any]:
        """The existing gradients, after the last backward pass; already scaled."""
        return [slot.tensor.grad for _, slot in self._parameters if slot.tensor.grad is not None]

    def scale_rest(self) -> None:
        """Scales the gradients that were not handed in yet."""
        if self.scale == 1.0 or self._scaled:
            return
        self._scaled = True
        for i, slot in self._parameters:
            if i not in self._sent and slot.tensor.grad is not None:
                self._check(slot, slot.tensor.grad)
                slot.tensor.grad.mul_(self.scale)

    def on_turn(self) -> None:
        """Called when a batch is handed out: remembers the statistics before it."""
        self._scaled = False
        self._sent.clear()
        self._copying.clear()
        self._lent.clear()
        for _, slot in self._statistics:
            slot.at = slot.tensor.detach().to("cpu", torch.float32, copy=True)

    def pointers(self) -> Any:
        """The addresses of the gradients that were not handed in, by variable."""
        ready = self._copied(wait=False)
        for i, slot in self._parameters:
            sent = self._sent.get(i)
            if sent is None:
                gradient = slot.tensor.grad
                if gradient is None:
                    ready.append((i, self._zeros_of(slot)))
                else:
                    self._check(slot, gradient)
                    ready.extend(self._memory_of(i, gradient))
            elif slot.tensor.grad is not sent[0] or sent[0]._version != sent[1]:
                raise Error(
                    f'the gradient of "{slot.name}" was changed after it had been handed in: clip '
                    "with the optimizer's clip_grad_norm(), or make it with overlap=False"
                )
        ready.extend((i, self._keep(value)) for i, value in self.statistics())
        ready.extend(self._copied(wait=True))
        ctypes.memset(self._pointers, 0, ctypes.sizeof(self._pointers))
        for i, memory in ready:
            self._pointers[i] = memory.data_ptr()
        return self._pointers

    def statistics(self) -> list[tuple[int, Any]]:
        """The value that a step averages, for each statistic.

        The ps compute kept x old + (1 - kept) x the mean of the pushed values. torch has already
        done the same for its batches, so the pushed value is the one that leads from the old value
        to torch's new one, however many forward passes there were.
        """
        pushed = []
        for i, slot in self._statistics:
            assert slot.kept is not None
            new = slot.tensor.detach().to("cpu", torch.float32)
            pushed.append((i, (new - slot.kept * slot.at).div_(1 - slot.kept)))
        return pushed

    def _zeros_of(self, slot: Slot) -> Any:
        elements = slot.tensor.numel()
        if self._zeros is None or self._zeros.numel() < elements:
            self._zeros = torch.zeros(elements)
            self._keep(self._zeros)
        return self._zeros
