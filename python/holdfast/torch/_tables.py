# SPDX-License-Identifier: Apache-2.0

"""The embedding tables of a model: rows for its modules, and the rows' gradients."""

from __future__ import annotations

import contextlib
import dataclasses
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
import numpy.typing as npt
import torch

from holdfast.cluster import Cluster
from holdfast.errors import Error, Refused
from holdfast.job import AdamW, Float32Array, Optimizer, RmsProp
from holdfast.table import EmbeddingTable
from holdfast.torch._data import Ahead, Inline, Piece

Ids = npt.NDArray[np.uint64]

# The ids that a batch is about to look up, by module.
IdsOf = Callable[[Any], Mapping[Any, Any]]


class Lookup(torch.nn.Module):  # type: ignore[misc]
    """A module that looks rows up in a table; it has no parameters and no buffers."""

    def __init__(self, name: str, table: EmbeddingTable, padding_idx: int | None) -> None:
        super().__init__()
        kind = type(self).__name__
        if not isinstance(name, str):
            raise TypeError(f"{kind}: the name of a table is a str, got {name!r}")
        if not isinstance(table, EmbeddingTable):
            raise TypeError(f'{kind}: table "{name}": expected EmbeddingTable, got {table!r}')
        self.name = name
        self.table = table
        self.embedding_dim = table.row_length
        self.padding_idx = padding_idx
        # The dtype of what it returns, as a torch.nn.Embedding made here would have it.
        self._dtype = torch.get_default_dtype()
        # Set by the optimizer that finds the module, with the module's path in the model.
        self._tables: Tables | None = None
        self._path = ""

    def _apply(self, fn: Callable[[Any], Any], recurse: bool = True) -> Any:
        # What .half(), .bfloat16() and .to(dtype) do to a module.
        self._dtype = fn(torch.zeros((), dtype=self._dtype, device="cpu")).dtype
        return super()._apply(fn, recurse)

    def __getstate__(self) -> dict[str, Any]:
        # A copy, in another process or in this one, has no cluster.
        return {**self.__dict__, "_tables": None, "_path": ""}

    def __str__(self) -> str:
        where = f' ("{self._path}" of the model)' if self._path else ""
        return f'{type(self).__name__} of table "{self.name}"{where}'

    def extra_repr(self) -> str:
        padding = "" if self.padding_idx is None else f", padding_idx={self.padding_idx}"
        return f'"{self.name}", {self.embedding_dim}{padding}'

    def look_up(self, input: Any) -> tuple[Any, Any, int | None]:
        """(the distinct rows, the index of each id's row, the index of the padding's row).

        The rows have the module's dtype; their gradients are added up in float32.
        """
        if self._tables is None:
            raise Error(
                f"{self}: it has no cluster to read from: make holdfast.torch.Optimizer with the "
                "model first; a copy of a model has none either"
            )
        rows, where, padding = self._tables.look_up(self, input)
        return rows.to(self._dtype), where, padding


def ids_of(module: Lookup, ids: Any) -> Ids:
    """Ids as the cluster takes them, in the same shape: signed ids by their bits."""
    if isinstance(ids, torch.Tensor):
        ids = ids.detach().cpu().numpy()
    array = np.asarray(ids)
    if array.size == 0:
        return np.zeros(array.shape, np.uint64)
    if array.dtype.kind == "i":
        return array.astype(np.int64).view(np.uint64)
    if array.dtype.kind != "u":
        raise TypeError(f"{module}: ids have dtype {array.dtype}; they are integers")
    return array.astype(np.uint64)


@dataclasses.dataclass(frozen=True)
class Use:
    """Rows that may get gradients in a backward pass.

    Attributes:
        ids: Ids of the rows, each once.
        rows: The leaf of the graph, [ids, row_length].
        kept: The rows that count; None for all.
    """

    ids: Ids
    rows: Any
    kept: Any


class Tables:
    """The tables of a model's modules.

    Attributes:
        declared: Tables by name.
    """

    def __init__(self, model: Any) -> None:
        self._modules: list[Lookup] = []
        self.declared: dict[str, EmbeddingTable] = {}
        # By table, the first module that uses it.
        self._first: dict[str, Lookup] = {}
        for path, module in model.named_modules():
            if isinstance(module, Lookup):
                self._add(path, module)
        self._cluster: Cluster | None = None
        # Whether gradients of rows that are read now can be handed in.
        self.in_turn = False
        # By table, rows of the turn that were read before they were looked up, with sorted ids.
        self._ahead: dict[str, tuple[Ids, Float32Array]] = {}
        # By table, in the order of the turn's look-ups.
        self._uses: dict[str, list[Use]] = {}

    def _add(self, path: str, module: Lookup) -> None:
        module._path = path
        first = self._first.setdefault(module.name, module)
        if first.table is not module.table and vars(first.table) != vars(module.table):
            raise ValueError(
                f"{first} and {module} declare it differently: modules that share a table are "
                "given the same EmbeddingTable"
            )
        self.declared[module.name] = first.table
        self._modules.append(module)

    def check(self, default: Optimizer | None) -> None:
        """Checks that each table has an optimizer that tables support.

        Raises:
            ValueError: A table has none; the error names table and module.
        """
        rules = "Sgd, Momentum, Adagrad, Adam or Ftrl"
        for module in self._first.values():
            rule = module.table.optimizer or default
            if rule is None:
                raise ValueError(
                    f"{module}: there is no torch optimizer whose rule the table could use: give "
                    f"the EmbeddingTable an optimizer, one of {rules}"
                )
            if isinstance(rule, (AdamW, RmsProp)):
                raise ValueError(
                    f"{module}: tables do not support {type(rule).__name__}: give the "
                    f"EmbeddingTable an optimizer, one of {rules}"
                )

    def attach(self, cluster: Cluster) -> None:
        """From now on modules read from ``cluster``, where the tables are declared."""
        self._cluster = cluster
        for module in self._modules:
            module._tables = self

    def on_turn(self) -> None:
        """Called when a batch is handed out, or when there are no more."""
        self._ahead.clear()
        self._uses.clear()

    # Ids that are announced before they are looked up.

    def merged(self, told: list[Mapping[Any, Any]]) -> dict[str, Ids]:
        """By table, the ids that ``ids`` has returned, each once, in order."""
        of_table: dict[str, list[Ids]] = {}
        for ids in told:
            for module, some in ids.items():
                if not isinstance(module, Lookup) or module._tables is not self:
                    raise TypeError(
                        "ids: the keys are the Embedding and EmbeddingBag modules of the model, "
                        f"got {module!r}"
                    )
                array = ids_of(module, some).reshape(-1)
                if module.padding_idx is not None:
                    array = array[array != _id_of(module.padding_idx)]
                of_table.setdefault(module.name, []).append(array)
        return {name: np.unique(np.concatenate(arrays)) for name, arrays in of_table.items()}

    def want(self, ids: Mapping[str, Ids]) -> None:
        """Requests the rows, to arrive with the next values."""
        assert self._cluster is not None
        self._cluster.want_rows(ids)

    def read_ahead(self, ids: Mapping[str, Ids]) -> None:
        """Reads rows of the turn that are not here yet, in one call for all tables."""
        assert self._cluster is not None
        if ids:
            rows = self._cluster.pull_rows(ids)
            self._ahead = {name: (ids[name], rows[name]) for name in ids}

    # Look-ups and gradients.

    def look_up(self, module: Lookup, input: Any) -> tuple[Any, Any, int | None]:
        if not isinstance(input, torch.Tensor):
            raise TypeError(f"{module}: ids are a tensor, got {input!r}")
        ids, positions = np.unique(ids_of(module, input).reshape(-1), return_inverse=True)
        padding, kept, wanted = None, None, ids
        if module.padding_idx is not None:
            kept = ids != _id_of(module.padding_idx)
            wanted = ids[kept]
            padding = None if len(wanted) == len(ids) else int(np.argmin(kept))
        if padding is None:
            kept, values = None, self._read(module, wanted)
        else:
            values = np.zeros((len(ids), module.embedding_dim), np.float32)
            values[kept] = self._read(module, wanted)
        rows = torch.from_numpy(values).to(input.device)
        if self.in_turn and torch.is_grad_enabled():
            rows.requires_grad_()
            self._uses.setdefault(module.name, []).append(Use(wanted, rows, kept))
        where = torch.from_numpy(positions.reshape(-1)).to(input.device)
        return rows, where.reshape(input.shape), padding

    def _read(self, module: Lookup, ids: Ids) -> Float32Array:
        assert self._cluster is not None
        if len(ids) == 0:
            return np.zeros((0, module.embedding_dim), np.float32)
        if module.name in self._ahead:
            known, rows = self._ahead[module.name]
            at = np.searchsorted(known, ids)
            if at[-1] < len(known) and np.array_equal(known[at], ids):
                return np.asarray(rows[at], np.float32)
        return self._cluster.pull_rows({module.name: ids})[module.name]

    def zero_grad(self) -> None:
        for uses in self._uses.values():
            for use in uses:
                use.rows.grad = None

    def multiply(self, factor: float) -> None:
        """Multiplies the gradients, as a script may."""
        for uses in self._uses.values():
            for use in uses:
                if use.rows.grad is not None:
                    use.rows.grad.mul_(factor)

    def _gradients(self, scale: float) -> dict[str, tuple[Ids, Any]]:
        """By table, ids and gradients of the look-ups that a backward pass has reached.

        A row used by several look-ups occurs once for each.
        """
        found: dict[str, tuple[Ids, Any]] = {}
        for name, uses in self._uses.items():
            reached = [use for use in uses if use.rows.grad is not None]
            if not reached:
                continue
            gradients = [use.rows.grad.detach().cpu() for use in reached]
            gradients = [
                gradient if use.kept is None else gradient[torch.from_numpy(use.kept)]
                for use, gradient in zip(reached, gradients, strict=True)
            ]
            ids = [use.ids for use in reached]
            whole = gradients[0] if len(gradients) == 1 else torch.cat(gradients)
            found[name] = (np.concatenate(ids), whole if scale == 1.0 else whole * scale)
        return found

    def sums(self, scale: float) -> list[Any]:
        """The gradients of the rows, each row once, for computing a norm."""
        sums = []
        for ids, gradients in self._gradients(scale).values():
            different, positions = np.unique(ids, return_inverse=True)
            total = torch.zeros(len(different), gradients.shape[1], device="cpu")
            sums.append(total.index_add_(0, torch.from_numpy(positions.reshape(-1)), gradients))
        return sums

    def hand_in(self, scale: float) -> None:
        """Hands in the gradients of the turn, once for each table.

        If they are not finite, the push counts as not finite, as with variables.

        Raises:
            Error: A table has more different rows than are allowed in a push.
        """
        assert self._cluster is not None
        for name, (ids, gradients) in self._gradients(scale).items():
            most = self.declared[name].max_rows_per_push
            if len(ids) > most and len(np.unique(ids)) > most:
                raise Error(
                    f"{self._first[name]}: the batch uses {len(np.unique(ids))} different rows, "
                    f"and the table is declared with max_rows_per_push={most}"
                )
            # Besides the number of rows, only sums that are not finite are refused.
            with contextlib.suppress(Refused):
                self._cluster.add_rows(name, ids, gradients.numpy())


class Told:
    """A source of batches whose ids are announced to the tables before they are looked up.

    Args:
        source: The source of the batches.
        tables: The tables.
        ids: Returns the ids for the examples of a piece.
        own: The pieces of each batch that this process computes.
        stride: Distance from one batch of this process to its next; None if it is not known.
    """

    def __init__(
        self, source: Inline | Ahead, tables: Tables, ids: IdsOf, own: range, stride: int | None
    ) -> None:
        self._source = source
        self._tables = tables
        self._ids_of = ids
        self._own = own
        self._stride = stride
        # By batch, the pieces of the current batch and of the one that will probably be next, and
        # their ids.
        self._loaded: dict[int, list[Any]] = {}
        self._ids: dict[int, dict[str, Ids]] = {}

    def begin(
        self, batch: int, waiting: Callable[[], contextlib.AbstractContextManager[None]]
    ) -> None:
        """Hands out the batch; loading it, and the next one, counts as waiting for input."""
        upcoming = [batch] if self._stride is None else [batch, batch + self._stride]
        with waiting():
            self._loaded = {which: self._pieces_of(which) for which in upcoming}
        self._ids = {which: self._told(which) for which in upcoming}
        self._tables.read_ahead(self._ids[batch])
        for which in upcoming[1:]:
            self._tables.want(self._ids[which])

    def _pieces_of(self, batch: int) -> list[Any]:
        if batch in self._loaded:
            return self._loaded[batch]
        return [self._source.take((batch, index)) for index in self._own]

    def _told(self, batch: int) -> dict[str, Ids]:
        if batch in self._ids:
            return self._ids[batch]
        return self._tables.merged([self._ids_of(piece) for piece in self._loaded[batch]])

    def take(self, piece: Piece) -> Any:
        batch, index = piece
        return self._loaded[batch][index - self._own.start]


def _id_of(number: int) -> np.uint64:
    return np.uint64(number % 2**64)
