# SPDX-License-Identifier: Apache-2.0

"""Transfers rows of embedding tables between NumPy and the library."""

from __future__ import annotations

import contextlib
import ctypes
import dataclasses
from collections.abc import Mapping
from typing import Any

import numpy as np
import numpy.typing as npt

from holdfast import _native
from holdfast._native import SLICE_MS, library
from holdfast.job import Float32Array

_FLOAT32 = np.dtype(np.float32)


@dataclasses.dataclass(frozen=True)
class Table:
    """A table that was declared."""

    name: str
    index: int
    row_length: int


def tables_of(cluster: int) -> dict[str, Table]:
    """The tables of a holdfast_cluster, by name."""
    count = ctypes.c_size_t()
    _native.call(library.holdfast_get_num_tables, cluster, ctypes.byref(count))
    tables: dict[str, Table] = {}
    for i in range(count.value):
        told = _native.Table()
        _native.call(library.holdfast_get_table, cluster, i, ctypes.byref(told))
        name = told.name.decode()
        tables[name] = Table(name, i, int(told.row_length))
    return tables


def find(tables: Mapping[str, Table], name: str) -> Table:
    if name not in tables:
        there = ", ".join(tables) or "none"
        raise ValueError(f'there is no table "{name}"; there are: {there}')
    return tables[name]


def ids_of(name: str, ids: npt.ArrayLike) -> npt.NDArray[np.uint64]:
    """Ids as the library takes them, in the same shape."""
    array = np.asarray(ids)
    if array.size == 0:
        array = array.astype(np.uint64)
    if array.dtype.kind not in "ui":
        raise TypeError(f'ids of table "{name}" have dtype {array.dtype}; they are integers')
    if array.dtype.kind == "i" and array.min() < 0:
        raise ValueError(
            f'ids of table "{name}" are unsigned, and {array.min()} is among them: hashes of 64 '
            "bits are passed as .view(numpy.uint64)"
        )
    return np.ascontiguousarray(array, np.uint64).reshape(array.shape)


class Request:
    """Rows of several tables, by the table's name, as an array of holdfast_rows."""

    def __init__(self, tables: Mapping[str, Table], ids: Mapping[str, npt.ArrayLike]) -> None:
        self.count = len(ids)
        self.array = (_native.Rows * self.count)()
        # By name; kept while the library may read them.
        self._ids: dict[str, npt.NDArray[np.uint64]] = {}
        self._tables = [find(tables, name) for name in ids]
        for rows, table in zip(self.array, self._tables, strict=True):
            of_table = self._ids[table.name] = ids_of(table.name, ids[table.name])
            rows.table = table.index
            rows.ids = of_table.ctypes.data
            rows.count = of_table.size

    def empty(self) -> dict[str, Float32Array]:
        """Arrays for the values, of the ids' shapes followed by the row's length."""
        return {
            table.name: np.zeros((*self._ids[table.name].shape, table.row_length), np.float32)
            for table in self._tables
        }


def read(loop: int, request: Request) -> dict[str, Float32Array]:
    """The rows of a holdfast_loop's turn; 0 if the turn has been rolled back meanwhile."""
    values = request.empty()
    into = (ctypes.c_void_p * request.count)(*[array.ctypes.data for array in values.values()])
    elements = (ctypes.c_size_t * request.count)(*[array.size for array in values.values()])
    # The outcome of the turn is reported when it is answered.
    with contextlib.suppress(_native.RolledBackMeanwhile):
        _native.wait(
            library.holdfast_loop_read_rows,
            loop,
            request.array,
            request.count,
            into,
            elements,
            SLICE_MS,
        )
    return values


def pull(cluster: int, request: Request) -> dict[str, Float32Array]:
    """The newest rows."""
    handle = ctypes.c_void_p()
    _native.call(
        library.holdfast_pull_rows, cluster, 0, request.array, request.count, ctypes.byref(handle)
    )
    assert handle.value is not None
    memory = _native.Memory(handle.value, library.holdfast_values_free)
    _native.wait(library.holdfast_values_wait, memory.handle, SLICE_MS)
    values = request.empty()
    for i, array in enumerate(values.values()):
        _native.call(
            library.holdfast_values_get_rows, memory.handle, i, array.ctypes.data, array.size
        )
    return values


def gradients_of(
    table: Table, ids: npt.NDArray[np.uint64], gradients: npt.ArrayLike
) -> Float32Array:
    """Gradients as the library takes them.

    Raises:
        TypeError, ValueError: They are not the gradients of these rows.
    """
    array: npt.NDArray[Any] = np.asarray(gradients)
    if array.dtype != _FLOAT32:
        raise TypeError(
            f'gradients of table "{table.name}" have dtype {array.dtype}, not float32: convert '
            "them with .astype(numpy.float32)"
        )
    shape = (*ids.shape, table.row_length)
    if array.shape != shape:
        raise ValueError(
            f'gradients of table "{table.name}" have shape {array.shape}; these ids need {shape}'
        )
    return np.ascontiguousarray(array)
