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
from holdfast.errors import Error, Refused
from holdfast.job import Float32Array

_FLOAT32 = np.dtype(np.float32)

# Gradients of this size in bytes, all together, fit in one message, and are not sent in parts.
_MESSAGE = 4 << 20
# Not the number of a turn.
_NO_TURN = -1


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

    An exception of a signal handler, such as KeyboardInterrupt, may end any method between any two
    of its instructions. The native loop knows what was contributed and what was handed in; what
    Python knows is only believed while ``_sure`` is set. Each method clears it before it changes
    anything, and sets it when everything here describes the native loop again.

    Attributes:
        place: Where values are written to; None for the loop's own memory.
        turn: The turn, or the next one once it has been answered.
        told: Number of the last turn whose roll-back the script has been told of.
    """

    def __init__(
        self,
        cluster: int,
        variables: list[tuple[str, tuple[int, ...], bool]],
        place: Place | None = None,
        handle: ctypes.c_void_p | None = None,
    ) -> None:
        """Starts the native loop, whose handle is also written to ``handle``."""
        count = len(variables)
        self._count = count
        self._elements = (ctypes.c_size_t * count)(*[math.prod(shape) for _, shape, _ in variables])
        handle = ctypes.c_void_p() if handle is None else handle
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
        # Whether everything below describes the native loop.
        self._sure = True
        # Whether `turn` has been fetched, and the number of the turn that the script was given.
        self._has_turn = False
        self._given = _NO_TURN
        self.told = _NO_TURN
        self._variables = variables
        # Values of the turn, once they have been requested; and the handle of those that have no
        # owner yet.
        self._values: dict[str, Float32Array] | None = None
        self._taken = ctypes.c_void_p()

        # Name, index among all variables, and shape of the trainable ones.
        self._trainable = [
            (name, i, shape) for i, (name, shape, trained) in enumerate(variables) if trained
        ]
        self._pointers = (ctypes.c_void_p * count)()
        self._names = [name for name, _, _ in self._trainable]
        # Whether parts of gradients are sent before all were handed in.
        self._sends_early = sum(4 * self._elements[i] for _, i, _ in self._trainable) > _MESSAGE
        # Whether anything was handed in for the turn. By variable, the gradients that `add` was
        # given; and of those that the native loop has, their checksums. And the rows of tables.
        self._handed_in = False
        self._added: dict[int, Float32Array] = {}
        self._sums: dict[int, int] = {}
        self._rows: list[tuple[_rows.Request, Float32Array]] = []
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

    @property
    def done(self) -> bool:
        """Whether the script can know that the job is done."""
        return self._has_turn and bool(self.turn.done)

    def finish(self) -> None:
        """Takes the last turn, once the job has been ended."""
        self._sure = False
        self._fetch_turn()

    def take(self) -> _native.Turn:
        """The turn to be answered, or the turn that says that the job is done.

        If it was taken before, nothing that was handed in for it counts.
        """
        turn = self.current()
        if self._handed_in:
            self.restart()
        self._given = _NO_TURN if turn.done else turn.number
        return turn

    def current(self) -> _native.Turn:
        """The turn, or, if it was answered, the next one."""
        if not self._sure:
            self._settle()
        if not self._has_turn:
            self._sure = False
            self._fetch_turn()
        return self.turn

    def is_open(self) -> bool:
        """Whether the script has a turn that it has not answered."""
        if not self._sure:
            self._settle()
        return self._has_turn and self._given == self.turn.number

    def need_turn(self) -> None:
        if not self.is_open():
            raise Error("there is no current batch: it was pushed already, or the job is done")

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
        self._lent.extend(arrays)
        known = self._known
        for gradient, (name, i, shape) in zip(arrays, trainable, strict=True):
            if known[i]() is not gradient:
                self._point_to(i, gradient, name, shape)
        if self._added:
            self._push_added()
        self._push_from(self._pointers, examples, loss, clip_factor)

    def push_from(self, pointers: Any, examples: int, loss: float, clip_factor: float) -> None:
        """Pushes from memory; null for variables that were added, or have no gradient."""
        self.need_turn()
        self._push_from(pointers, examples, loss, clip_factor)

    def _push_from(self, pointers: Any, examples: int, loss: float, clip_factor: float) -> None:
        self._sure = False
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
        self._fetch_turn()

    def add(self, gradients: Mapping[str, Float32Array]) -> None:
        self.need_turn()
        checked: dict[int, Float32Array] = {}
        for name, gradient in gradients.items():
            found = [variable for variable in self._trainable if variable[0] == name]
            if not found:
                raise ValueError(f'there is no trainable variable "{name}"')
            [(_, i, shape)] = found
            if i in self._added:
                raise ValueError(f'the gradient of "{name}" was handed in before')
            checked[i] = _checked(gradient, name, shape)
        self._sure = False
        self._handed_in = True
        self._lent.extend(checked.values())
        # What is not sent before the others is handed in by `push`.
        early = [i for i, array in checked.items() if self._sends_early and _is_whole(array)]
        sums = _sums_of([checked[i] for i in early])
        for i, checksum in zip(early, sums, strict=True):
            address = checked[i].ctypes.data
            _native.call(self._add, self._handle, i, address, self._elements[i])
            self._sums[i] = checksum
        self._added.update(checked)
        self._sure = True

    def _push_added(self) -> None:
        """Prepares the push of what was given to ``add``, as it is now."""
        early = list(self._sums)
        if _sums_of([self._added[i] for i in early]) != list(self._sums.values()):
            # The native loop gets everything again.
            self._sure = False
            _native.call(library.holdfast_loop_restart, self._handle)
            self._sums.clear()
            for request, gradients in self._rows:
                # Rows that were refused are refused again.
                with contextlib.suppress(Refused):
                    self._hand_in_rows(request, gradients)
            self._sure = True
        for i, gradient in self._added.items():
            if i in self._sums:
                self._known[i] = _nothing
                self._pointers[i] = None
            else:
                name, shape, _ = self._variables[i]
                self._point_to(i, gradient, name, shape)

    def read_rows(self, request: _rows.Request) -> dict[str, Float32Array]:
        self.current()
        return _rows.read(self._handle, request)

    def want_rows(self, request: _rows.Request) -> None:
        _native.call(library.holdfast_loop_want_rows, self._handle, request.array, request.count)

    def add_rows(self, request: _rows.Request, gradients: Float32Array) -> None:
        self.need_turn()
        self._sure = False
        self._handed_in = True
        if self._sends_early:
            gradients = gradients.copy()
            self._rows.append((request, gradients))
        try:
            self._hand_in_rows(request, gradients)
        except Refused:
            self._sure = True  # and nothing has changed
            raise
        self._sure = True

    def _hand_in_rows(self, request: _rows.Request, gradients: Float32Array) -> None:
        _native.call(
            library.holdfast_loop_add_rows,
            self._handle,
            request.array,
            gradients.ctypes.data,
            gradients.size,
        )

    def add_from(self, variable: int, address: int) -> None:
        """Hands in a gradient that stays at ``address`` until the next turn has arrived."""
        self.need_turn()
        self._sure = False
        self._handed_in = True
        _native.call(self._add, self._handle, variable, address, self._elements[variable])
        self._sure = True

    def _point_to(self, i: int, gradient: Any, name: str, shape: tuple[int, ...]) -> None:
        """Sets the pointer to a gradient, or to a copy that is kept until the next turn."""
        self._known[i] = _nothing
        array = gradient
        if type(array) is not np.ndarray or array.dtype != _FLOAT32 or array.shape != shape:
            array = _checked(gradient, name, shape)
        try:
            # Three times as fast as .ctypes.data, but fails for memory that is read-only or not
            # contiguous.
            self._pointers[i] = ctypes.addressof(ctypes.c_char.from_buffer(array))
        except (TypeError, ValueError, BufferError):
            array = np.ascontiguousarray(array)
            self._lent.append(array)
            self._pointers[i] = array.ctypes.data
        else:
            if array is gradient:
                self._known[i] = weakref.ref(array)
            else:
                self._lent.append(array)

    @contextlib.contextmanager
    def waiting_for_input(self) -> Iterator[None]:
        """Counts the time inside as a wait for input; nested waits count once."""
        outer = self._input_waits
        try:
            self._input_waits = outer + 1
            if outer == 0:
                self._input(self._handle, 1, None)
            yield
        finally:
            self._input_waits = outer
            if outer == 0:
                # A loop that has ended has nothing to report, whatever was raised inside.
                self._input(self._handle, 0, None)

    def restart(self) -> None:
        """Forgets what was handed in for the turn, so that all of it may be handed in again.

        Afterwards that memory belongs to the caller again.
        """
        self._sure = False
        _native.call(library.holdfast_loop_restart, self._handle)
        self._forget()
        self._sure = True

    def contribute_nothing(self) -> None:
        self.need_turn()
        self._sure = False
        _native.call(library.holdfast_loop_contribute, self._handle, 0, 0.0, 1.0)
        self._fetch_turn()

    def values(self) -> dict[str, Float32Array]:
        self.current()
        if self._values is None:
            # Those of a call that was interrupted; otherwise they have an owner, or are freed.
            library.holdfast_values_free(self._taken)
            _native.call(
                library.holdfast_loop_take_values,
                self._handle,
                self._addresses,
                self._count,
                ctypes.byref(self._taken),
            )
            assert self._taken.value is not None
            memory = _native.Memory(self._taken.value, library.holdfast_values_free)
            self._taken.value = None
            memory.lent = self.place
            self._values = {
                name: memory.array(address or 0, shape, writable=False)
                for (name, shape, _), address in zip(self._variables, self._addresses, strict=True)
            }
        return self._values

    def read_into(self, pointers: Any) -> None:
        """Copies values to memory; null for variables that are not wanted."""
        self.current()
        _native.call(
            library.holdfast_loop_read, self._handle, pointers, self._elements, self._count
        )

    def outcomes(self) -> Outcomes:
        outcome = _native.Outcome()
        _native.call(library.holdfast_loop_outcome, self._handle, ctypes.byref(outcome))
        return Outcomes(
            *[int(getattr(outcome, field.name)) for field in dataclasses.fields(Outcomes)]
        )

    def _fetch_turn(self) -> None:
        """Waits for the next turn; afterwards the gradients' memory belongs to the caller again."""
        # Usually the turn arrives within the first slice.
        kind = self._next(self._handle, SLICE_MS, self._turn_ref, self._error_ref)
        if kind == _native.TIMED_OUT:
            library.holdfast_error_free(self._error)
            _native.wait(self._next, self._handle, SLICE_MS, self._turn_ref)
        elif kind != _native.OK:
            raise self._exception()
        if self.turn.done and self.place is not None:
            # The caller expects the final values in its memory: fails if they are not there.
            nothing = (ctypes.c_void_p * self._count)()
            _native.call(
                library.holdfast_loop_read, self._handle, nothing, self._elements, self._count
            )
        self._has_turn = True
        self._values = None
        self._lent.clear()
        if self._handed_in:
            self._forget()
        self._sure = True

    def _settle(self) -> None:
        """Asks the native loop for its turn, for which nothing is then handed in."""
        state = ctypes.c_int32()
        _native.call(
            library.holdfast_loop_current, self._handle, self._turn_ref, ctypes.byref(state)
        )
        self._values = None
        self._has_turn = state.value != _native.TURN_NEXT
        if state.value == _native.TURN_HANDED_OUT:
            _native.call(library.holdfast_loop_restart, self._handle)
        if self._has_turn:
            self._forget()
        self._sure = True

    def _forget(self) -> None:
        """Nothing is handed in, and no native thread reads any gradient."""
        self._added.clear()
        self._sums.clear()
        self._rows.clear()
        self._lent.clear()
        self._handed_in = False

    def _exception(self) -> Exception:
        return _native.exception(self._error)


def _is_whole(array: Float32Array) -> bool:
    """Whether the library can read the array where it is, and there is anything to read."""
    return array.flags.c_contiguous and array.size > 0


def _sums_of(arrays: list[Float32Array]) -> list[int]:
    """Checksums that tell whether an array has been changed."""
    count = len(arrays)
    pointers = (ctypes.c_void_p * count)(*[array.ctypes.data for array in arrays])
    sizes = (ctypes.c_size_t * count)(*[array.nbytes for array in arrays])
    return list(_native.checksums(pointers, sizes, count))


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


def _checked(gradient: object, name: str, shape: tuple[int, ...]) -> Float32Array:
    """A gradient as an array."""
    array = np.asarray(gradient)
    if array.dtype != _FLOAT32:
        raise TypeError(
            f'gradient of "{name}" has dtype {array.dtype}, not float32: convert it with '
            ".astype(numpy.float32), or compute in float32 all along, which takes half the time"
        )
    if array.shape != shape:
        raise ValueError(f'gradient of "{name}" has shape {array.shape}, declared {shape}')
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
