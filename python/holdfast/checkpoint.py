# SPDX-License-Identifier: Apache-2.0

"""Reads checkpoints, without a cluster."""

from __future__ import annotations

import ctypes
import dataclasses
import os
import pathlib

import numpy as np
import numpy.typing as npt

from holdfast import _native
from holdfast._native import library
from holdfast.job import Float32Array


@dataclasses.dataclass(frozen=True)
class StoredTable:
    """An embedding table of a checkpoint.

    Attributes:
        rows: Number of rows in the checkpoint. Rows that no step has changed are not among them.
        row_length: Number of values in a row.
    """

    rows: int
    row_length: int


@dataclasses.dataclass(frozen=True)
class Checkpoint:
    """The contents of a checkpoint: variables, and embedding tables whose rows are still on disk.

    Attributes:
        step: Global step of the checkpoint; in asynchronous jobs, the number of pushes it includes.
        values: float32 arrays by name, which the caller may change.
        tables: Embedding tables by name.
    """

    step: int
    values: dict[str, Float32Array]
    tables: dict[str, StoredTable] = dataclasses.field(default_factory=dict)
    _memory: _native.Memory | None = dataclasses.field(default=None, repr=False, compare=False)

    def __getstate__(self) -> dict[str, object]:
        # A copy, perhaps in another process, does not keep the native object.
        return {**self.__dict__, "_memory": None}

    def read_rows(self, table: str) -> tuple[npt.NDArray[np.uint64], Float32Array]:
        """Reads all rows of an embedding table from the checkpoint's files.

        Nothing is kept: each call reads the files, and returns arrays of its own. A table that does
        not fit in memory can be exported by ``holdfast checkpoint export``, to files that
        ``numpy.load`` maps.

        Args:
            table: Its name.

        Returns:
            The ids, uint64 [rows], in increasing order, and their values, float32 [rows,
            row_length].

        Raises:
            ValueError: The checkpoint has no such table; the error names those that it has. Or
                this object is a copy, or was pickled.
            FileNotFoundError: The checkpoint was removed after it had been loaded. A job keeps only
                its last checkpoints.
            Error: The checkpoint is damaged.
        """
        if table not in self.tables:
            there = ", ".join(self.tables) or "none"
            raise ValueError(f'the checkpoint has no table "{table}"; there are: {there}')
        if self._memory is None:
            raise ValueError("rows are read by what load_checkpoint returned, not by a copy of it")
        stored = self.tables[table]
        ids = np.empty(stored.rows, np.uint64)
        rows = np.empty((stored.rows, stored.row_length), np.float32)
        _native.call(
            library.holdfast_values_read_table,
            self._memory.handle,
            list(self.tables).index(table),
            ids.ctypes.data,
            rows.ctypes.data,
            stored.rows,
        )
        return ids, rows


def load_checkpoint(path: str | os.PathLike[str]) -> Checkpoint:
    """Reads a checkpoint, without a cluster.

    Variables are read at once, rows of embedding tables by ``Checkpoint.read_rows``.

    Args:
        path: The folder of a checkpoint, or a job's ``--checkpoint_dir``, whose newest
            durable checkpoint is read.

    Raises:
        FileNotFoundError: There is no checkpoint.
        Error: The checkpoint is damaged.
    """
    handle = ctypes.c_void_p()
    name = os.fsencode(pathlib.Path(path))
    _native.call(library.holdfast_load_checkpoint, name, ctypes.byref(handle))
    assert handle.value is not None
    memory = _native.Memory(handle.value, library.holdfast_values_free)
    return Checkpoint(
        _native.step_of(memory),
        _native.values_of(memory, writable=True),
        _tables_of(memory),
        memory,
    )


def _tables_of(memory: _native.Memory) -> dict[str, StoredTable]:
    """The tables of a holdfast_values, in the order of their indices."""
    count = ctypes.c_size_t()
    _native.call(library.holdfast_values_get_num_tables, memory.handle, ctypes.byref(count))
    tables: dict[str, StoredTable] = {}
    for i in range(count.value):
        table = _native.Table()
        rows = ctypes.c_size_t()
        _native.call(library.holdfast_values_get_table, memory.handle, i, ctypes.byref(table))
        _native.call(library.holdfast_values_get_num_rows, memory.handle, i, ctypes.byref(rows))
        tables[table.name.decode()] = StoredTable(int(rows.value), int(table.row_length))
    return tables
