# SPDX-License-Identifier: Apache-2.0

"""Embeddings whose rows are on the cluster."""

from __future__ import annotations

from typing import Any, Literal

import torch

from holdfast.table import EmbeddingTable
from holdfast.torch._tables import Lookup


class Embedding(Lookup):
    """Replaces ``torch.nn.Embedding``: the rows are those of a table on the cluster.

    It has no parameters. ``holdfast.torch.Optimizer`` finds it in the model, declares its table,
    and pushes the gradients of the rows that a batch has used. A forward pass reads the rows of its
    ids, each once: outside of ``Optimizer.batches`` the newest rows, and after the job's end the
    final ones. Reading does not create rows.

    Args:
        name: The table's name in the cluster. Modules of the same name share their rows.
        table: The declaration of the table. If it has no optimizer of its own, it uses the rule of
            the first parameter group of torch's optimizer.
        padding_idx: An id whose row is zeros, and is neither read nor trained. Default: none.

    Attributes:
        name: The table's name.
        table: The declaration of the table.
        embedding_dim: Number of values in a row.
        padding_idx: As given.

    Raises:
        TypeError: ``name`` or ``table`` is something else.
    """

    def __init__(self, name: str, table: EmbeddingTable, *, padding_idx: int | None = None) -> None:
        super().__init__(name, table, padding_idx)

    def forward(self, input: Any) -> Any:
        """Looks up rows.

        Args:
            input: Ids, integers of any shape. A negative id stands for the 64-bit unsigned number
                with the same bits, so an int64 may be a hash.

        Returns:
            Rows in the module's dtype (float32 unless it was converted, as by ``.bfloat16()``), of
            the shape of ``input`` followed by the row's length, on its device.

        Raises:
            TypeError: They are not integers.
            Error: No optimizer was made with the model.
            Unavailable: The rows could not be read.
        """
        rows, where, padding = self.look_up(input)
        return torch.nn.functional.embedding(where, rows, padding_idx=padding)


class EmbeddingBag(Lookup):
    """Replaces ``torch.nn.EmbeddingBag``: the result has a row for each bag of ids.

    Everything else is as with ``Embedding``.

    Args:
        name: As for ``Embedding``.
        table: As for ``Embedding``.
        mode: How the rows of a bag are combined: "sum", "mean", or "sqrtn", the sum divided by the
            square root of the number of rows. An empty bag gives zeros.
        include_last_offset: Whether ``offsets`` ends with the number of ids.
        padding_idx: An id that is ignored in the bags. Default: none.

    Attributes:
        name: The table's name.
        table: The declaration of the table.
        embedding_dim: Number of values in a row.
        mode: As given.
        include_last_offset: As given.
        padding_idx: As given.

    Raises:
        TypeError, ValueError: An argument is something else.
    """

    def __init__(
        self,
        name: str,
        table: EmbeddingTable,
        mode: Literal["sum", "mean", "sqrtn"] = "mean",
        *,
        include_last_offset: bool = False,
        padding_idx: int | None = None,
    ) -> None:
        super().__init__(name, table, padding_idx)
        if mode not in ("sum", "mean", "sqrtn"):
            raise ValueError(f'{self}: mode is {mode!r}, not "sum", "mean" or "sqrtn"')
        self.mode = mode
        self.include_last_offset = include_last_offset

    def forward(self, input: Any, offsets: Any = None, per_sample_weights: Any = None) -> Any:
        """Looks up rows, and combines those of each bag.

        Args:
            input: Ids as for ``Embedding``: [bags, ids], or [ids] with ``offsets``.
            offsets: Where each bag begins in ``input``.
            per_sample_weights: Factors of the rows, of the shape of ``input``; with "sum" only.

        Returns:
            [bags, row_length] in the module's dtype, on the device of ``input``.

        Raises:
            TypeError: Ids are not integers.
            ValueError: The arguments do not fit together.
            Error: No optimizer was made with the model.
            Unavailable: The rows could not be read.
        """
        if per_sample_weights is not None and self.mode != "sum":
            raise ValueError(f'{self}: per_sample_weights are for mode="sum", not "{self.mode}"')
        rows, where, padding = self.look_up(input)
        options = {
            "include_last_offset": self.include_last_offset,
            "padding_idx": padding,
        }
        bags = torch.nn.functional.embedding_bag(
            where,
            rows,
            offsets,
            mode="mean" if self.mode == "mean" else "sum",
            per_sample_weights=per_sample_weights,
            **options,
        )
        if self.mode != "sqrtn":
            return bags
        ones = torch.ones(len(rows), 1, dtype=rows.dtype, device=rows.device)
        counts = torch.nn.functional.embedding_bag(where, ones, offsets, mode="sum", **options)
        return bags / counts.clamp(min=1).sqrt()
