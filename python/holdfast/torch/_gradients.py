# SPDX-License-Identifier: Apache-2.0

"""Passes gradients from backward passes to the cluster: their memory, and when to send them."""

from __future__ import annotations

import ctypes
import dataclasses
import logging
from collections.abc import Mapping, Sequence
from typing import Any

import torch

from holdfast._loop import Loop
from holdfast.errors import Error
from holdfast.torch._prints import changed, prints_of
from holdfast.torch._variables import Slot

_log = logging.getLogger("holdfast")


def _is_on_gpu(gradient: Any) -> bool:
    return bool(gradient.is_cuda)


def _pinned_memory(gradient: Any) -> Any:
    return torch.empty(gradient.shape, dtype=torch.float32, device="cpu", pin_memory=True)


def _start_copy(memory: Any, gradient: Any) -> Any:
    """Starts a copy, and returns an event that says when it is complete.

    Narrower types are widened on the GPU. Everything runs in the stream of the backward pass.
    """
    with torch.cuda.device(gradient.device):
        memory.copy_(gradient.float(), non_blocking=True)
        event = torch.cuda.Event()
        event.record()
    return event


@dataclasses.dataclass(frozen=True)
class _Seen:
    """A gradient as it was at one moment.

    Attributes:
        gradient: The tensor.
        version: Its version then.
        fact: A fingerprint or, of a sum over passes, its norm.
        number: For a sum, the number of the pass that has added to it.
    """

    gradient: Any
    version: int
    fact: Any
    number: int = 0


def _seen(gradients: Sequence[Any]) -> list[_Seen]:
    facts = prints_of(gradients)
    return [_Seen(g, g._version, fact) for g, fact in zip(gradients, facts, strict=True)]


class Gradients:
    """The gradients of one turn, and the memory that the cluster reads them from.

    After the last backward pass ``grad`` of each parameter is what plain PyTorch has if the loss is
    divided by the number of passes: scripts may clip or change it. What is pushed is ``grad`` as it
    is when the turn ends.

    With ``overlap``, hooks hand a gradient in as soon as the last backward pass has made it, and
    the library sends it while the pass goes on. If it turns out that a gradient has changed since,
    the push begins anew, with the gradients as they are then; from then on nothing is sent early.

    There is only one turn at a time; the hooks are called by autograd's threads.

    Args:
        slots: The variables.
        overlap: Whether gradients are sent early.
        accumulate: Number of backward passes in a turn.
        ranks: Number of processes whose gradients are added up before they are pushed.
        has_loss_scale: Whether turns may have a loss scale.

    Attributes:
        loop: Set while a backward pass shall send gradients as it makes them.
        in_turn: Whether gradients belong to a turn.
        number: The number of the backward pass, from 0.
        loss_scale: The loss scale of the turn.
    """

    def __init__(
        self,
        slots: Sequence[Slot],
        *,
        overlap: bool,
        accumulate: int = 1,
        ranks: int = 1,
        has_loss_scale: bool = False,
    ) -> None:
        self._slots = slots
        self._parameters = [(i, slot) for i, slot in enumerate(slots) if slot.kept is None]
        self._statistics = [(i, slot) for i, slot in enumerate(slots) if slot.kept is not None]
        self._pointers = (ctypes.c_void_p * len(slots))()
        self._accumulate = accumulate
        self._ranks = ranks
        self._overlap = overlap
        self.loop: Loop | None = None
        self.in_turn = False
        self.number = 0
        self.loss_scale = 1.0
        # By variable, gradients that were handed in, or that a group is about to add up.
        self._sent: dict[int, _Seen] = {}
        # Whether a gradient has changed after it was handed in.
        self._stale = False
        # By variable, gradients of which the norm was taken, to be clipped in the push.
        self._clipped: dict[int, _Seen] = {}
        # By variable, the sum over the passes so far, and the parameter whose sum was lost.
        self._sums: dict[int, _Seen] = {}
        self._lost = ""
        # Copies from a GPU that may still be in progress: (event, variable, memory).
        self._copying: list[tuple[Any, int, Any]] = []
        # Memory that the library reads until the turn is over.
        self._lent: list[Any] = []
        self._pinned: dict[int, Any] = {}
        self._zeros: Any = None
        for i, slot in self._parameters:
            if accumulate > 1 or has_loss_scale:
                slot.tensor.register_hook(self._before(i, slot))
            if accumulate > 1 or overlap or ranks > 1:
                slot.tensor.register_post_accumulate_grad_hook(self._after(i, slot))

    # Factors.

    def _early(self, gradient: Any) -> float:
        """The factor for what one backward pass adds to ``grad``."""
        factor = 1.0 / self._accumulate
        return factor / self.loss_scale if gradient.dtype is torch.float32 else factor

    def late(self, gradient: Any) -> float:
        """The factor between ``grad`` and what is pushed.

        Narrow types are divided by the loss scale once they are float32: in their own type small
        gradients would vanish.
        """
        factor = 1.0 / self._ranks
        return factor if gradient.dtype is torch.float32 else factor / self.loss_scale

    # Hooks.

    def _before(self, i: int, slot: Slot) -> Any:
        def on_gradient(gradient: Any) -> Any:
            if not self.in_turn:
                return None
            self._check_sum(i, slot)
            factor = self._early(gradient)
            return None if factor == 1.0 else gradient * factor

        return on_gradient

    def _after(self, i: int, slot: Slot) -> Any:
        def on_sum(parameter: Any) -> None:
            if not self.in_turn:
                return
            gradient = parameter.grad
            if self._accumulate > 1:
                norm = torch.linalg.vector_norm(gradient.detach())
                self._sums[i] = _Seen(gradient, gradient._version, norm, self.number)
            if self.loop is not None and not self._stale:
                self._send(self.loop, i, slot, gradient)
            elif self._ranks > 1:
                self._note(i, gradient)

        return on_sum

    def _check_sum(self, i: int, slot: Slot) -> None:
        """Notes if the sum of the passes before this one was reset."""
        before = self._sums.get(i)
        if before is None or before.number == self.number:
            # What happens after the last backward pass is a change like any other.
            return
        now = slot.tensor.grad
        if now is before.gradient and now._version == before.version:
            return
        if now is None or (not now.any() and before.fact != 0):
            self._lost = slot.key

    def _note(self, i: int, gradient: Any) -> None:
        [self._sent[i]] = _seen([gradient])

    def _send(self, loop: Loop, i: int, slot: Slot, gradient: Any) -> None:
        if i in self._sent:
            # A second backward pass adds to what is being sent.
            self._stale = True
            return
        self._check(slot, gradient)
        self._note(i, gradient)
        for ready, memory in self._memory_of(i, gradient):
            loop.add_from(ready, memory.data_ptr())

    # Memory.

    def _memory_of(self, i: int, gradient: Any) -> list[tuple[int, Any]]:
        """Returns gradients in memory that the library can read, as (variable, memory).

        Gradients on a GPU are copied to pinned memory, which takes time; others may be ready first.
        """
        gradient = gradient.detach()
        late = self.late(gradient)
        if late != 1.0:
            gradient = gradient.float() * late
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
                f'the gradient of "{slot.key}" is sparse: the cluster adds dense gradients; make '
                "the layer with sparse=False"
            )

    # The turn.

    def on_turn(self, loss_scale: float) -> None:
        """Called when a batch is handed out: remembers the statistics before it."""
        self.loop = None
        self.loss_scale = loss_scale
        self._forget()
        self._lent.clear()
        for _, slot in self._statistics:
            slot.at = slot.tensor.detach().to("cpu", torch.float32, copy=True)
            slot.begun = None

    def on_turn_again(self) -> None:
        """Called when the same batch is handed out again: nothing of the last attempt is left."""
        for _, slot in self._statistics:
            if slot.begun is not None:
                slot.tensor.detach().copy_(slot.begun)
        self.loop = None
        self._forget()
        self._lent.clear()

    def on_pass(self, number: int) -> None:
        """Called before the body of the loop computes backward pass ``number``."""
        self.in_turn = True
        self.number = number
        if number == 0:
            for _, slot in self._statistics:
                slot.begun = slot.tensor.detach().clone()

    def on_zero_grad(self) -> None:
        """Called when the script resets the gradients at the begin of a turn."""
        self._sums.clear()
        self._lost = ""
        if self._ranks > 1:
            self._sent.clear()
        elif self._sent:
            self._stale = True

    def _forget(self) -> None:
        self._sent.clear()
        self._clipped.clear()
        self._stale = False
        self._sums.clear()
        self._lost = ""
        self._copying.clear()

    def all(self) -> list[Any]:
        """The existing gradients, after the last backward pass, as they are pushed."""
        found = [slot.tensor.grad for _, slot in self._parameters if slot.tensor.grad is not None]
        return [
            gradient if self.late(gradient) == 1.0 else gradient.float() * self.late(gradient)
            for gradient in found
        ]

    def reached(self) -> list[bool]:
        """For each variable, whether it has a gradient; statistics always have a value."""
        return [slot.kept is not None or slot.tensor.grad is not None for slot in self._slots]

    def multiply(self, factor: float) -> None:
        """Multiplies the gradients, as a script may."""
        for _, slot in self._parameters:
            if slot.tensor.grad is not None:
                slot.tensor.grad.detach().mul_(factor)
        if self._clipped:
            self.on_clip()

    def check_passes(self) -> None:
        """Refuses a turn in which the sum over its passes was reset.

        Raises:
            Error: The error names the parameter.
        """
        for i in self._sums:
            self._check_sum(i, self._slots[i])
        if self._lost:
            raise Error(
                f'the gradient of "{self._lost}" was reset between the backward passes of one step '
                "(accumulate=), so that the earlier passes would be lost: call the optimizer's "
                "zero_grad(), which resets gradients only at the begin of a step, instead of the "
                "model's"
            )

    def check_unchanged(self) -> None:
        """Refuses gradients that were changed before a group has added them up.

        Raises:
            Error: The error names the parameter.
        """
        for i in self._changed(self._sent):
            raise Error(
                f'the gradient of "{self._slots[i].key}" was changed after the backward pass, '
                "before the ranks' gradients were added up: clip with the optimizer's "
                "clip_grad_norm()"
            )

    def check_clipped(self) -> None:
        """Refuses gradients that were changed after they were clipped in the push.

        Raises:
            Error: The error names the parameter.
        """
        for i in self._changed(self._clipped):
            raise Error(
                f'the gradient of "{self._slots[i].key}" was changed after the optimizer\'s '
                "clip_grad_norm(), which clips what is pushed: clip with "
                "torch.nn.utils.clip_grad_norm_, or change gradients before"
            )

    def on_clip(self) -> None:
        """Called when the norm is taken by which the push will be clipped."""
        if self._changed(self._sent):
            self._stale = True
        some = [
            (i, slot.tensor.grad)
            for i, slot in self._parameters
            if slot.tensor.grad is not None and (self._stale or i not in self._sent)
        ]
        noted = zip((i for i, _ in some), _seen([gradient for _, gradient in some]), strict=True)
        self._clipped = {**self._sent, **dict(noted)}

    def _changed(self, noted: Mapping[int, _Seen]) -> list[int]:
        """The variables whose gradients are not those that were noted."""
        different = []
        same = []
        for i, seen in noted.items():
            now = self._slots[i].tensor.grad
            if now is not seen.gradient or now._version != seen.version:
                different.append(i)
            else:
                same.append(i)
        if same:
            facts = prints_of([noted[i].gradient for i in same])
            different += [same[k] for k in changed([noted[i].fact for i in same], facts)]
        return different

    def hand_in(self, loop: Loop) -> Any:
        """The addresses of all gradients that ``loop`` does not have yet, by variable.

        Raises:
            Error: A gradient was changed after it was clipped; the error names the parameter.
            TypeError: A gradient is sparse.
        """
        self.check_clipped()
        # Clipped gradients that were sent are noted as they were sent, unless that was stale.
        if self._stale or (not self._clipped and self._changed(self._sent)):
            if self._overlap:
                _log.info(
                    "gradients are changed after the backward pass: from now on they are sent "
                    "when the step begins (overlap=False does the same)"
                )
            self._overlap = False
            # The copies belong to gradients that no longer count.
            self._copied(wait=True)
            loop.restart()
            self._forget()
        ready = self._copied(wait=False)
        for i, slot in self._parameters:
            if i in self._sent:
                continue
            gradient = slot.tensor.grad
            if gradient is None:
                ready.append((i, self._zeros_of(slot)))
            else:
                self._check(slot, gradient)
                ready.extend(self._memory_of(i, gradient))
        ready.extend((i, self._keep(value)) for i, value in self.statistics())
        ready.extend(self._copied(wait=True))
        ctypes.memset(self._pointers, 0, ctypes.sizeof(self._pointers))
        for i, memory in ready:
            self._pointers[i] = memory.data_ptr()
        return self._pointers

    @property
    def overlaps(self) -> bool:
        """Whether the last backward pass shall send gradients as it makes them."""
        return self._overlap

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
            self._zeros = torch.zeros(elements, device="cpu", dtype=torch.float32)
            self._keep(self._zeros)
        return self._zeros
