# SPDX-License-Identifier: Apache-2.0

"""JAX training loops: any pytree of parameters, on any mesh of a process's devices.

The script computes loss and gradients with ``jax.value_and_grad``; the cluster holds the
parameters and the state of the optimizer, and hands out batches::

    step = jax.jit(jax.value_and_grad(loss))
    trainer = holdfast.jax.Trainer(params, optimizer=holdfast.Adam(learning_rate=1e-3), steps=3000)
    for batch in trainer.batches(len(x), 100):
        loss, grads = step(trainer.params, x[batch], y[batch])
        trainer.push(loss, grads)

Rows of embedding tables are arguments of the loss, like the parameters: ``Trainer.rows`` reads the
rows of a batch, and ``push`` takes their gradients.
"""

from __future__ import annotations

import collections
import contextlib
import os
import re
import types
from collections.abc import Callable, Iterator, Mapping
from typing import Any, overload

import jax
import numpy as np
import numpy.typing as npt

import holdfast
from holdfast import _arguments
from holdfast.data import Shuffle
from holdfast.job import Asynchronous, Float32Array, Optimizer, Variable
from holdfast.table import EmbeddingTable

__all__ = ["Trainer", "load_checkpoint"]

_DTYPES = ("float32", "bfloat16", "float16")


class Trainer:
    """The parameters of a training loop, held by a cluster.

    Every worker creates one, with the same arguments; the constructor returns when the variables
    exist on the cluster. Each leaf of the pytree becomes a variable, named by its path:
    ``{"layers": [{"kernel": ...}]}`` has "layers/0/kernel". A leaf determines:

    - the variable's first value, unless the job resumes from a checkpoint. The chief's
      values count;
    - its sharding, if the leaf is a committed ``jax.Array``: ``params`` has the same one.
      All devices must belong to this process, which is a single worker;
    - its dtype: float32, or bfloat16 or float16. In the latter cases, steps change a float32
      master copy, which is rounded when it is read.

    A trainer may be used in a ``with`` statement, which leaves the cluster at its end. Otherwise
    the process leaves when it ends.

    Attributes:
        cluster: The ``holdfast.Cluster``, for everything that has no shortcut here.
        names: The variable of each leaf, in the order of ``jax.tree.leaves``.
        batch: Index of the current batch. A random key that is folded with it,
            ``jax.random.fold_in(key, trainer.batch)``, is the same in whichever worker computes the
            batch.

    Args:
        params: A pytree of arrays.
        optimizer: The rule by which a step changes parameters; the cluster applies it.
        steps: Global steps in the whole job; in asynchronous jobs, pushes. Synchronous jobs
            with examples by ticket hand out as many batches as fill all steps.
        state: A pytree of arrays that are averaged over steps rather than trained, such as
            the statistics of batch norm; see ``push``. Its names begin with "state/".
        moving_average: Share of ``state`` that a step keeps.
        tables: Embedding tables by name, whose rows ``rows`` reads. Default: none.
        options: Called with the name of each parameter; returns additional arguments for its
            ``Variable``, such as ``compression`` or an ``optimizer`` of its own.
        cluster: The cluster. Default: ``holdfast.connect()``.
        declare: Additional arguments for ``Cluster.declare``, such as ``consistency``.

    Raises:
        TypeError: A leaf has another dtype, or is not an array; the error names it.
        ValueError: Two leaves have the same name, or not all of a leaf's devices belong to this
            process.
        Refused: The job is not valid, or another one was declared before.
        JobFailed, Unavailable: The variables did not come to exist.
    """

    def __init__(
        self,
        params: Any,
        *,
        optimizer: Optimizer,
        steps: int,
        state: Any = None,
        moving_average: float = 0.99,
        tables: Mapping[str, EmbeddingTable] | None = None,
        options: Callable[[str], Mapping[str, Any]] | None = None,
        cluster: holdfast.Cluster | None = None,
        **declare: Any,
    ) -> None:
        self._params = _Tree(params, "params")
        self._state = _Tree(state, "state", prefix="state/")
        self.names = self._params.names
        _check_names(self._params.names + self._state.names)
        variables = {
            **self._params.variables(options or (lambda name: {})),
            **self._state.variables(lambda name: {"moving_average": moving_average}),
        }
        self.cluster = holdfast.connect() if cluster is None else cluster
        self.cluster.declare(variables, optimizer=optimizer, steps=steps, tables=tables, **declare)
        # Distance from one batch of this worker to its next; None if it is not known.
        self._stride: int | None = None
        consistency = declare.get("consistency")
        ticketed = declare.get("examples") == "by_ticket"
        if not ticketed and not isinstance(consistency, Asynchronous):
            replicas = getattr(consistency, "total_num_replicas", None)
            self._stride = replicas or self.cluster.replicas
        self.batch = 0
        self._examples: int | None = None

    def __enter__(self) -> Trainer:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        value: BaseException | None,
        traceback: types.TracebackType | None,
    ) -> None:
        self.cluster.__exit__(kind, value, traceback)

    @property
    def params(self) -> Any:
        """The parameters: a pytree of ``jax.Array`` like the one given to the constructor.

        Within ``batches``, the parameters at which the gradient of the batch must be computed;
        after the loop, the final ones. The arrays belong to the caller: later steps do not change
        them, and they may be donated; reading the property again creates new ones.
        """
        return self._params.put(self.cluster.pull())

    @property
    def state(self) -> Any:
        """The averages of ``state``, like ``params``."""
        return self._state.put(self.cluster.pull())

    def rows(self, ids: Mapping[str, npt.ArrayLike]) -> dict[str, Any]:
        """Rows of embedding tables, read in one call to the ps, each row once.

        Within ``batches``, the rows at which the gradient of the batch must be computed; after the
        loop, the final rows; elsewhere, the newest. Reading does not create rows.

        Args:
            ids: The ids of rows, by table: integers in an array of any shape, in any order,
                possibly repeated. A negative id stands for the 64-bit unsigned number with the same
                bits, so an int64 may be a hash. NumPy arrays keep all 64 bits of such ids; JAX
                arrays have 32 bits unless ``jax_enable_x64`` is set.

        Returns:
            ``jax.Array`` by table, float32 of the shape of its ids followed by ``row_length``: a
            ``jit`` that takes them is recompiled only for other shapes.

        Raises:
            TypeError, ValueError: There is no such table, or ids are not integers.
            Unavailable: The rows could not be read.
        """
        # Nothing else refers to these arrays, so JAX may take over their memory.
        rows = self.cluster.pull_rows(_unsigned(ids))
        return {name: jax.device_put(array) for name, array in rows.items()}

    @overload
    def batches(
        self, *, on_rollback: Callable[[int], object] | None = ..., strict: bool = ...
    ) -> Iterator[int]: ...

    @overload
    def batches(
        self,
        examples: int,
        batch_size: int,
        *,
        seed: int = ...,
        shuffle: Shuffle = ...,
        shuffle_block: int = ...,
        agree: bool = ...,
        ids: Callable[[npt.NDArray[np.int64]], Mapping[str, npt.ArrayLike]] | None = ...,
        on_rollback: Callable[[int], object] | None = ...,
        strict: bool = ...,
    ) -> Iterator[npt.NDArray[np.int64]]: ...

    def batches(
        self,
        examples: int | None = None,
        batch_size: int | None = None,
        *,
        seed: int = 0,
        shuffle: Shuffle = "full",
        shuffle_block: int = 4096,
        agree: bool = True,
        ids: Callable[[npt.NDArray[np.int64]], Mapping[str, npt.ArrayLike]] | None = None,
        on_rollback: Callable[[int], object] | None = None,
        strict: bool = False,
    ) -> Iterator[int | npt.NDArray[np.int64]]:
        """Hands out the batches for which this worker computes gradients, until the job is done.

        Each must be answered by ``push``. Failures that the cluster absorbs show only as batches
        that are handed out again; see ``Cluster.batches``.

        Args:
            examples: Number of examples in the data set.
            batch_size: Number of examples in a batch of this worker.
            seed: Seed of the order of the examples.
            shuffle: How random the order is; as for ``batch_indices``.
            shuffle_block: As for ``batch_indices``.
            agree: Whether the arguments above are compared with those of all other workers, and of
                earlier lives of this one (``Cluster.agree``). With other ones a worker would train
                on other examples without a word.
            ids: Called with the indices of a batch's examples; returns the ids that will be given
                to ``rows``. If batches are assigned by step, these rows then arrive with the other
                values.
            on_rollback: As for ``Cluster.batches``.
            strict: As for ``Cluster.batches``.

        Yields:
            The indices of the batch's examples, int64 [batch_size], as returned by
            ``batch_indices``; without ``examples``, the index of the batch.

        Raises:
            TypeError: ``examples`` or ``batch_size`` is missing.
            Refused: Another worker has other arguments.
        """
        if (examples is None) != (batch_size is None):
            raise TypeError("batches: give examples and batch_size, or neither")
        if ids is not None and examples is None:
            raise TypeError("batches: ids needs the indices of examples: give examples")
        self._examples = batch_size
        if agree and examples is not None and batch_size is not None:
            self._agree_on_order(
                {
                    "dataset length": examples,
                    "batch size": batch_size,
                    "seed of the order of examples": seed,
                    "shuffle": shuffle,
                    "shuffle_block": shuffle_block,
                }
            )

        def indices_of(batch: int) -> npt.NDArray[np.int64]:
            assert examples is not None and batch_size is not None
            return holdfast.batch_indices(
                batch, examples, batch_size, seed, shuffle=shuffle, shuffle_block=shuffle_block
            )

        for batch in self.cluster.batches(on_rollback=on_rollback, strict=strict):
            self.batch = batch
            if ids is not None and self._stride is not None:
                self.cluster.want_rows(_unsigned(ids(indices_of(batch + self._stride))))
            yield batch if examples is None else indices_of(batch)

    def _agree_on_order(self, facts: Mapping[str, str | int]) -> None:
        try:
            self.cluster.agree(facts)
        except holdfast.Refused as error:
            raise error._adding("with agree=False, batches() compares nothing") from None

    def waiting_for_input(self) -> contextlib.AbstractContextManager[None]:
        """Counts the time in its ``with`` statement as a wait for input.

        Like ``Cluster.waiting_for_input``.
        """
        return self.cluster.waiting_for_input()

    def push(
        self,
        loss: npt.ArrayLike,
        grads: Any,
        *,
        examples: int | None = None,
        state: Any = None,
        ids: Mapping[str, npt.ArrayLike] | None = None,
        rows: Mapping[str, npt.ArrayLike] | None = None,
        clip_factor: float | None = None,
    ) -> None:
        """Contributes the gradient of the current batch, exactly once.

        Waits until the devices have computed it. Returns when the values for the next batch
        have arrived.

        Args:
            loss: Mean loss over the examples, a scalar.
            grads: The gradient, a pytree like ``params``; a mean over the examples. Loss and
                gradient are in the order of ``jax.value_and_grad``.
            examples: Number of examples in the batch. Default: ``batch_size`` of ``batches``.
            state: The values of ``state`` in this batch, which the step averages: the batch's own
                statistics, not averages with earlier ones.
            ids: By table, the ids of the rows that have gradients, as given to ``rows``.
            rows: By table, their gradients, of the shape that ``rows`` returned. Gradients of
                repeated ids are added up.
            clip_factor: As for ``Cluster.push``.

        Raises:
            TypeError: A gradient has the wrong dtype, or an argument is not a number.
            ValueError: A number is out of range; a pytree has another structure than ``params`` or
                ``state``, or an array another shape; or a table in ``ids`` has no gradients. Like
                after a TypeError, nothing was pushed, and the batch may be pushed.
            Refused: A table has more different ids than ``max_rows_per_push``.
            Error: There is no current batch.
            Fenced, JobFailed, Stopped, Unavailable: The worker cannot go on.
        """
        examples = self._examples if examples is None else examples
        if examples is None:
            raise TypeError("push: examples is required if batches was not given batch_size")
        gradients = {**self._params.get(grads, "grads"), **self._state.get(state, "state")}
        ids, rows = ids or {}, rows or {}
        if set(ids) != set(rows):
            raise ValueError(f"push: ids has the tables {sorted(ids)}, but rows has {sorted(rows)}")
        _arguments.of_push(examples, 0.0, clip_factor)
        mean_loss = _arguments.number("loss", jax.device_get(loss))
        try:
            for name, of_table in _unsigned(ids).items():
                self._add_rows(name, of_table, np.asarray(jax.device_get(rows[name])))
            self.cluster.push(gradients, loss=mean_loss, examples=examples, clip_factor=clip_factor)
        except (TypeError, ValueError, holdfast.Refused):
            # Another push of the batch hands in all tables again.
            with contextlib.suppress(holdfast.Error):
                self.cluster._need_turn().restart()
            raise

    def _add_rows(self, table: str, ids: npt.NDArray[Any], gradients: npt.NDArray[Any]) -> None:
        try:
            self.cluster.add_rows(table, ids, gradients)
        except holdfast.Refused:
            # A sum that is not finite makes the push count as not finite, as a variable's does.
            if np.isfinite(gradients).all():
                raise


def _unsigned(ids: Mapping[str, npt.ArrayLike]) -> dict[str, npt.NDArray[Any]]:
    """Converts signed ids by their bits; the cluster refuses ids that are not integers."""
    arrays = {name: np.asarray(of_table) for name, of_table in ids.items()}
    return {
        name: array.astype(np.int64).view(np.uint64) if array.dtype.kind == "i" else array
        for name, array in arrays.items()
    }


def load_checkpoint(path: str | os.PathLike[str], like: Any) -> Any:
    """Reads the parameters of a checkpoint, without a cluster.

    Args:
        path: As for ``holdfast.load_checkpoint``.
        like: A pytree like the ``params`` of the trainer; only its structure, shapes, dtypes and
            shardings matter.

    Returns:
        The same pytree of ``jax.Array``.

    Raises:
        FileNotFoundError: There is no checkpoint.
        ValueError: It has no such variables, or variables of other shapes.
    """
    return _Tree(like, "like").put(holdfast.load_checkpoint(path).values)


class _Tree:
    """A pytree, whose leaves are variables."""

    def __init__(self, tree: Any, argument: str, *, prefix: str = "") -> None:
        leaves, self._structure = jax.tree_util.tree_flatten_with_path(tree)
        self._leaves = [leaf for _, leaf in leaves]
        self.names = [prefix + _name_of(path, argument) for path, _ in leaves]
        self._dtypes: list[np.dtype[Any]] = []
        self._shapes: list[tuple[int, ...]] = []
        # The placement of each leaf: its sharding, or None for JAX's default.
        self._shardings: list[Any] = []
        for (path, leaf), name in zip(leaves, self.names, strict=True):
            where = f"{argument}{jax.tree_util.keystr(path)}"
            if not hasattr(leaf, "dtype") or not hasattr(leaf, "shape"):
                raise TypeError(f'{where} ("{name}") is not an array: {leaf!r}')
            if str(leaf.dtype) not in _DTYPES:
                raise TypeError(
                    f'{where} ("{name}") has dtype {leaf.dtype}, not {", ".join(_DTYPES)}: '
                    "keep out of the pytree what is not trained"
                )
            sharding = leaf.sharding if getattr(leaf, "committed", False) else None
            if sharding is not None and not sharding.is_fully_addressable:
                raise ValueError(
                    f'{where} ("{name}") is on devices of other processes: a worker is one '
                    "process with its own devices"
                )
            self._dtypes.append(np.dtype(leaf.dtype))
            self._shapes.append(tuple(leaf.shape))
            self._shardings.append(sharding)

    def variables(self, options: Callable[[str], Mapping[str, Any]]) -> dict[str, Variable]:
        """The variables, with the leaves' values as first values; keeps none of the leaves."""
        values = jax.device_get(self._leaves)
        self._leaves = []
        return {
            name: Variable(shape, np.asarray(value).astype(np.float32), **options(name))
            for name, shape, value in zip(self.names, self._shapes, values, strict=True)
        }

    def put(self, values: dict[str, Float32Array]) -> Any:
        """The pytree on its devices, made of copies that nothing writes to."""
        arrays: list[Any] = []
        for name, shape, dtype in zip(self.names, self._shapes, self._dtypes, strict=True):
            if name not in values:
                raise ValueError(f'there is no variable "{name}"')
            if values[name].shape != shape:
                raise ValueError(f'"{name}" has shape {values[name].shape}, not {shape}')
            # device_put may take over the memory of an array on CPU devices, whatever its may_alias
            # says (jax-ml/jax#37830), and the caller may donate it: it is then written to, which
            # must not happen to the cluster's memory.
            arrays.append(np.array(values[name], dtype))
        return self._structure.unflatten(jax.device_put(arrays, self._shardings))

    def get(self, tree: Any, argument: str) -> dict[str, Float32Array]:
        """The leaves of a tree like this one, as float32 in host memory."""
        structure = jax.tree_util.tree_structure(tree)
        if structure != self._structure:
            raise ValueError(f"{argument}: expected {self._structure}, got {structure}")
        arrays = jax.device_get(jax.tree_util.tree_leaves(tree))
        named: dict[str, Float32Array] = {}
        for name, dtype, array in zip(self.names, self._dtypes, arrays, strict=True):
            array = np.asarray(array)
            # value_and_grad returns the dtype of the leaf; float32 is also accepted.
            if array.dtype != np.float32 and array.dtype == dtype:
                array = array.astype(np.float32)
            named[name] = array
        return named


def _name_of(path: tuple[Any, ...], argument: str) -> str:
    """The path with "/" between its keys, in characters that are valid in names.

    Other characters become "_". A pytree that is a single array gets the argument's name.
    """
    name = jax.tree_util.keystr(path, simple=True, separator="/") or argument
    name = re.sub(r"[^A-Za-z0-9_./-]", "_", name)
    # The first one is a letter or digit.
    return name if re.match(r"[A-Za-z0-9]", name) else "x" + name


def _check_names(names: list[str]) -> None:
    twice = [name for name, count in collections.Counter(names).items() if count > 1]
    if twice:
        raise ValueError(
            f"two leaves have the same name: {', '.join(twice)}; names keep letters, digits and "
            '"_-./" of the keys and have "_" for others'
        )
