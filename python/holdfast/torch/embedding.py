"""Embeddings whose rows are on the cluster."""

from __future__ import annotations

from typing import Any, Literal

import torch

from holdfast.table import EmbeddingTable
from holdfast.torch._tables import Lookup


class Embedding(Lookup):
    """Takes the place of ``torch.nn.Embedding``: the rows are those of a table of the cluster.

    It has no parameters. ``holdfast.torch.Optimizer`` finds it in the model, declares its
    table, and pushes the gradients of the rows that a batch has used. A forward pass reads the
    rows of its ids, each once; outside of ``Optimizer.batches`` the newest ones, and after the
    job's end the final ones. Reading makes no rows.

    Args:
        name: The table's name in the cluster. Modules of the same name share their rows.
        table: What is declared of it. Where it has no optimizer of its own, the rule is that of
            the first parameter group of torch's optimizer.
        padding_idx: An id whose row is zeros, and is neither read nor trained. Default: none.

    Attributes:
        name: The table's name.
        table: What is declared of it.
        embedding_dim: Values of a row.
        padding_idx: As given.

    Raises:
        TypeError: ``name`` or ``table`` is something else.
    """

    def __init__(self, name: str, table: EmbeddingTable, *, padding_idx: int | None = None) -> None:
        super().__init__(name, table, padding_idx)

    def forward(self, input: Any) -> Any:
        """Looks up rows.

        Args:
            input: Ids, integers of any shape. A negative one stands for the unsigned number of
                64 bits with the same bits, so an int64 may be a hash.

        Returns:
            float32, of the shape of ``input`` with the row's length behind, on its device.

        Raises:
            TypeError: They are not integers.
            Error: No optimizer was made with the model.
            Unavailable: The rows could not be read.
        """
        rows, where, padding = self.look_up(input)
        return torch.nn.functional.embedding(where, rows, padding_idx=padding)


class EmbeddingBag(Lookup):
    """Takes the place of ``torch.nn.EmbeddingBag``: a row of the result for each bag of ids.

    All else is as with ``Embedding``.

    Args:
        name: As for ``Embedding``.
        table: As for ``Embedding``.
        mode: What becomes of the rows of a bag: their "sum", their "mean", or with "sqrtn" their
            sum divided by the square root of their number. An empty bag gives zeros.
        include_last_offset: Whether ``offsets`` ends with the number of ids.
        padding_idx: An id that is left out of the bags. Default: none.

    Attributes:
        name: The table's name.
        table: What is declared of it.
        embedding_dim: Values of a row.
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
        """Looks up rows, and makes one of each bag.

        Args:
            input: Ids as for ``Embedding``: [bags, ids], or [ids] with ``offsets``.
            offsets: Where each bag begins in ``input``.
            per_sample_weights: Factors of the rows, of the shape of ``input``; with "sum" only.

        Returns:
            float32 [bags, row_length], on the device of ``input``.

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
        ones = torch.ones(len(rows), 1, device=rows.device)
        counts = torch.nn.functional.embedding_bag(where, ones, offsets, mode="sum", **options)
        return bags / counts.clamp(min=1).sqrt()
