# SPDX-License-Identifier: Apache-2.0

"""The native training loop."""

from __future__ import annotations

import contextlib
import ctypes
import dataclasses
import math
import weakref
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NoReturn

import numpy as np

from holdfast import _native, _rows
from holdfast._native import SLICE_MS, library
from holdfast.errors import Error
from holdfast.job import Float32Array

_FLOAT32 = np.dtype(np.float32)


@dataclasses.dataclass(frozen=True)
class Outcomes:
    """Counts of this worker's pushes by outcome, as far as outcomes are known.

    Attributes:
        accepted: Pushes that count, once, on every ps.
        stale: Pushes whose step was closed without them.
        duplicate: Pushes whose seat another push had taken.
        not_finite: Pushes that contributed nothing because the loss or a gradient was not
            finite.
        roll_backs: How often the job has gone back to an earlier step.
    """

    accepted: int
    stale: int
    duplicate: int
    not_finite: int
    roll_backs: int


@dataclasses.dataclass(frozen=True)
class Place:
    """Memory of the caller to which a loop writes values.

    Attributes:
        pointers: Address for each variable's values; null for the loop's own memory.
        owner: The object that keeps the memory alive.
    """

    pointers: Any
    owner: object


class Loop:
    """The native loop, its turns and its memory.

    Attributes:
        place: Where values are written to; None for the loop's own memory.
    """

    def __init__(
        self,
        cluster: int,
        variables: list[tuple[str, tuple[int, ...], bool]],
        place: Place | None = None,
    ) -> None:
        count = len(variables)
        self._count = count
        self._elements = (ctypes.c_size_t * count)(*[math.prod(shape) for _, shape, _ in variables])
        handle = ctypes.c_void_p()
        if place is None:
            _native.call(library.holdfast_loop_start, cluster, None, 0, ctypes.byref(handle))
        else:
            _native.call(
                library.holdfast_loop_start_in,
                cluster,
                place.pointers,
                self._elements,
                count,
                None,
                0,
                ctypes.byref(handle),
            )
        assert handle.value is not None
        self.place = place
        self._memory = _native.Memory(handle.value, library.holdfast_loop_free)
        self._memory.lent = place
        self._handle = handle.value
        self._addresses = (ctypes.c_void_p * count)()
        self.turn = _native.Turn()
        self._turn_ref = ctypes.byref(self.turn)
        # Whether `turn` is valid, and whether it was handed out and not answered yet.
        self._has_turn = False
        self.handed_out = False
        self._variables = variables
        # Values of the turn, once they have been requested.
        self._values: dict[str, Float32Array] | None = None

        # Name, index among all variables, and shape of the trainable ones.
        self._trainable = [
            (name, i, shape) for i, (name, shape, trained) in enumerate(variables) if trained
        ]
        self._pointers = (ctypes.c_void_p * count)()
        self._names = [name for name, _, _ in self._trainable]
        # Variables whose gradients were handed in before the others.
        self._added: set[int] = set()
        # Native threads read these until the next turn has arrived, even if a signal interrupts the
        # wait for it.
        self._lent: list[Any] = []
        # Weak references to the arrays pushed last, by variable. An array that is pushed again need
        # not be checked again.
        self._known: list[Any] = [_nothing] * count
        self._push = library.holdfast_loop_push
        self._add = library.holdfast_loop_add
        self._next = library.holdfast_loop_next
        self._input = library.holdfast_loop_input
        self._input_waits = 0
        self._error = ctypes.c_void_p()
        self._error_ref = ctypes.byref(self._error)

    def take(self) -> _native.Turn:
        """The turn to be answered, or the turn that says that the job is done."""
        if not self._has_turn:
            self._fetch_turn()
        self.handed_out = not self.turn.done
        return self.turn

    def push(
        self,
        gradients: Mapping[str, Float32Array] | Sequence[Float32Array],
        examples: int,
        loss: float,
        clip_factor: float,
    ) -> None:
        self.need_turn()
        trainable, names = self._trainable, self._names
        if self._added:
            trainable = [variable for variable in trainable if variable[1] not in self._added]
            names = [name for name, _, _ in trainable]
        if len(gradients) != len(trainable):
            _explain(gradients, names)
        if isinstance(gradients, Mapping):
            try:
                arrays: Sequence[Any] = [gradients[name] for name in names]
            except KeyError:
                _explain(gradients, names)
        else:
            arrays = gradients
        pointers = self._pointers
        known = self._known
        self._lent.extend(arrays)
        for gradient, (name, i, shape) in zip(arrays, trainable, strict=True):
            if known[i]() is not gradient:
                pointers[i] = self._address(gradient, name, i, shape)
        for i in self._added:
            pointers[i] = None
        self.push_from(pointers, examples, loss, clip_factor)

    def push_from(self, pointers: Any, examples: int, loss: float, clip_factor: float) -> None:
        """Pushes from memory; null for variables that were added, or have no gradient."""
        kind = self._push(
            self._handle,
            pointers,
            self._elements,
            self._count,
            examples,
            loss,
            clip_factor,
            self._error_ref,
        )
        if kind != _native.OK:
            raise self._exception()
        self._answered()

    def add(self, gradients: Mapping[str, Float32Array]) -> None:
        self.need_turn()
        for name, gradient in gradients.items():
            found = [variable for variable in self._trainable if variable[0] == name]
            if not found:
                raise ValueError(f'there is no trainable variable "{name}"')
            [(_, i, shape)] = found
            if i in self._added:
                raise ValueError(f'the gradient of "{name}" was handed in before')
            address = self._address(gradient, name, i, shape)
            self._known[i] = _nothing  # not among the pointers
            self._lent.append(gradient)
            self.add_from(i, address)
            self._added.add(i)

    def read_rows(self, request: _rows.Request) -> dict[str, Float32Array]:
        if not self._has_turn:
            self._fetch_turn()
        return _rows.read(self._handle, request)

    def want_rows(self, request: _rows.Request) -> None:
        _native.call(library.holdfast_loop_want_rows, self._handle, request.array, request.count)

    def add_rows(self, request: _rows.Request, gradients: Float32Array) -> None:
        self.need_turn()
        _native.call(
            library.holdfast_loop_add_rows,
            self._handle,
            request.array,
            gradients.ctypes.data,
            gradients.size,
        )

    def add_from(self, variable: int, address: int) -> None:
        """Hands in a gradient that stays at ``address`` until the next turn has arrived."""
        _native.call(self._add, self._handle, variable, address, self._elements[variable])

    def _address(self, gradient: Any, name: str, i: int, shape: tuple[int, ...]) -> int:
        """The address of a gradient, or of a copy that is kept until the next turn has arrived."""
        if type(gradient) is not np.ndarray or gradient.dtype != _FLOAT32:
            gradient = _float32_of(name, gradient)
        if gradient.shape != shape:
            raise ValueError(f'gradient of "{name}" has shape {gradient.shape}, declared {shape}')
        try:
            # Three times as fast as .ctypes.data, but fails for memory that is read-only or not
            # contiguous.
            address = ctypes.addressof(ctypes.c_char.from_buffer(gradient))
        except (TypeError, ValueError, BufferError):
            self._known[i] = _nothing
            gradient = np.ascontiguousarray(gradient)
            self._lent.append(gradient)
            return int(gradient.ctypes.data)
        self._known[i] = weakref.ref(gradient)
        return address

    @contextlib.contextmanager
    def waiting_for_input(self) -> Iterator[None]:
        """Counts the time inside as a wait for input; nested waits count once."""
        self._input_waits += 1
        if self._input_waits == 1:
            self._input(self._handle, 1, None)
        try:
            yield
        finally:
            self._input_waits -= 1
            if self._input_waits == 0:
                # A loop that has ended has nothing to report, whatever was raised inside.
                self._input(self._handle, 0, None)

    def need_turn(self) -> None:
        if not self.handed_out:
            raise Error("there is no current batch: it was pushed already, or the job is done")

    def restart(self) -> None:
        """Forgets what was handed in for the turn, so that all of it may be handed in again.

        Afterwards that memory belongs to the caller again.
        """
        _native.call(library.holdfast_loop_restart, self._handle)
        self._added.clear()
        self._lent.clear()

    def contribute_nothing(self) -> None:
        self.need_turn()
        _native.call(library.holdfast_loop_contribute, self._handle, 0, 0.0, 1.0)
        self._answered()

    def values(self) -> dict[str, Float32Array]:
        if not self._has_turn:
            self._fetch_turn()
        if self._values is None:
            handle = ctypes.c_void_p()
            _native.call(
                library.holdfast_loop_take_values,
                self._handle,
                self._addresses,
                self._count,
                ctypes.byref(handle),
            )
            assert handle.value is not None
            memory = _native.Memory(handle.value, library.holdfast_values_free)
            memory.lent = self.place
            self._values = {
                name: memory.array(address or 0, shape, writable=False)
                for (name, shape, _), address in zip(self._variables, self._addresses, strict=True)
            }
        return self._values

    def read_into(self, pointers: Any) -> None:
        """Copies values to memory; null for variables that are not wanted."""
        if not self._has_turn:
            self._fetch_turn()
        _native.call(
            library.holdfast_loop_read, self._handle, pointers, self._elements, self._count
        )

    def outcomes(self) -> Outcomes:
        outcome = _native.Outcome()
        _native.call(library.holdfast_loop_outcome, self._handle, ctypes.byref(outcome))
        return Outcomes(
            *[int(getattr(outcome, field.name)) for field in dataclasses.fields(Outcomes)]
        )

    def _answered(self) -> None:
        """Waits for the next turn; afterwards the gradients' memory belongs to the caller again."""
        self.handed_out = False
        self._has_turn = False
        self._values = None
        self._fetch_turn()

    def _fetch_turn(self) -> None:
        # Usually the turn arrives within the first slice.
        kind = self._next(self._handle, SLICE_MS, self._turn_ref, self._error_ref)
        if kind == _native.TIMED_OUT:
            library.holdfast_error_free(self._error)
            _native.wait(self._next, self._handle, SLICE_MS, self._turn_ref)
        elif kind != _native.OK:
            raise self._exception()
        self._has_turn = True
        self._lent.clear()
        self._added.clear()

    def _exception(self) -> Exception:
        return _native.exception(self._error)


def _explain(
    gradients: Mapping[str, Float32Array] | Sequence[Float32Array], names: Sequence[str]
) -> NoReturn:
    """Raises an error that says what is wrong with the gradients for these variables."""
    if not isinstance(gradients, Mapping):
        raise ValueError(
            f"{len(gradients)} gradients for {len(names)} trainable variables: " + ", ".join(names)
        )
    missing = [name for name in names if name not in gradients]
    if missing:
        raise ValueError("there is no gradient of " + ", ".join(missing))
    unknown = [str(name) for name in gradients if name not in names]
    raise ValueError("there is no trainable variable " + ", ".join(unknown))


def _nothing() -> None:
    """A dead weak reference."""


def _float32_of(name: str, gradient: object) -> Float32Array:
    array = np.asarray(gradient)
    if array.dtype != _FLOAT32:
        raise TypeError(
            f'gradient of "{name}" has dtype {array.dtype}, not float32: convert it with '
            ".astype(numpy.float32), or compute in float32 all along, which takes half the time"
        )
    return array


def copy_into(
    into: Mapping[str, Float32Array], values: dict[str, Float32Array]
) -> dict[str, Float32Array]:
    """Copies values to the caller's arrays, and returns these."""
    copied: dict[str, Float32Array] = {}
    for name, array in into.items():
        if name not in values:
            raise ValueError(f'there is no variable "{name}"')
        if not isinstance(array, np.ndarray) or array.dtype != _FLOAT32:
            raise TypeError(f'into "{name}": expected an array of float32, got {array!r}')
        if array.shape != values[name].shape:
            raise ValueError(
                f'into "{name}" has shape {array.shape}, declared {values[name].shape}'
            )
        if not array.flags.writeable:
            raise ValueError(f'into "{name}" is read-only')
        np.copyto(array, values[name])
        copied[name] = array
    return copied
