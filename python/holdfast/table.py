# SPDX-License-Identifier: Apache-2.0

"""Declarations of embedding tables."""

from __future__ import annotations

import numbers
from collections.abc import Mapping

from holdfast.job import Initializer, Optimizer, field_text


class EmbeddingTable:
    """Rows of float32 values by id, held by the cluster (docs/protocol/tables.md).

    An id is any 64-bit unsigned number, and need not be known beforehand. A row that no step has
    changed has its first values and takes no memory.

    Args:
        row_length: Number of values in a row.
        initializer: First values of a row: ``Zeros``, ``Constant``, ``Uniform``, ``Normal``
            or ``TruncatedNormal``.
        max_rows_per_push: Maximum number of different ids in a push. A larger number takes more
            memory of the ps per worker.
        optimizer: Optimizer of this table: ``Sgd``, ``Momentum``, ``Adagrad``, ``Adam`` or
            ``Ftrl``. A step changes only the rows for which it has gradients. Default: the job's.
        row_wise: With ``Adagrad``: one accumulator per row instead of one per value.
        min_count: A row is created by the step in which the number of pushes that have touched it
            reaches this count; the gradients of earlier steps are dropped. Default 1.
        expire_after_steps: A row is removed when no step has touched it for this many steps, or up
            to a quarter more. Default: never.
        max_rows: Maximum number of rows; beyond it, the least recently touched rows are removed.
            Default: limited only by memory.

    Attributes:
        row_length: As given.
        max_rows_per_push: As given.

    Raises:
        TypeError: An argument has the wrong type.
    """

    def __init__(
        self,
        row_length: int,
        initializer: Initializer,
        *,
        max_rows_per_push: int,
        optimizer: Optimizer | None = None,
        row_wise: bool = False,
        min_count: int | None = None,
        expire_after_steps: int | None = None,
        max_rows: int | None = None,
    ) -> None:
        if not isinstance(initializer, Initializer):
            raise TypeError(f"initializer: expected one of holdfast's, got {initializer!r}")
        if optimizer is not None and not isinstance(optimizer, Optimizer):
            raise TypeError(f"optimizer: expected Optimizer or None, got {optimizer!r}")
        numbers_given = {
            "row_length": row_length,
            "max_rows_per_push": max_rows_per_push,
            "min_count": min_count,
            "expire_after_steps": expire_after_steps,
            "max_rows": max_rows,
        }
        for name, value in numbers_given.items():
            is_needed = name in ("row_length", "max_rows_per_push")
            if value is None and not is_needed:
                continue
            if not isinstance(value, numbers.Integral) or isinstance(value, bool):
                expected = "int" if is_needed else "int or None"
                raise TypeError(f"{name}: expected {expected}, got {value!r}")
        self.row_length = int(row_length)
        self.max_rows_per_push = int(max_rows_per_push)
        self.initializer = initializer
        self.optimizer = optimizer
        self.row_wise = bool(row_wise)
        self._numbers = numbers_given

    def text(self, name: str, optimizers: tuple[Optimizer, ...]) -> str:
        """The field of the Declaration (proto/cluster.proto), as a textproto."""
        optimizer = 0 if self.optimizer is None else optimizers.index(self.optimizer)
        fields = [
            field_text("name", name),
            field_text("initializer", self.initializer),
            f"optimizer: {optimizer}" if optimizer else "",
            "row_wise: true" if self.row_wise else "",
            *[field_text(field, value) for field, value in self._numbers.items()],
        ]
        return f"tables {{ {' '.join(filter(None, fields))} }}\n"


def tables_of(tables: Mapping[str, EmbeddingTable] | None) -> dict[str, EmbeddingTable]:
    """Checks the tables given to ``Cluster.declare``.

    Raises:
        TypeError: An entry is not a table by its name.
    """
    for name, table in (tables or {}).items():
        if not isinstance(name, str):
            raise TypeError(f"names of tables are str, got {name!r}")
        if not isinstance(table, EmbeddingTable):
            raise TypeError(f'table "{name}": expected EmbeddingTable, got {table!r}')
    return dict(tables or {})
