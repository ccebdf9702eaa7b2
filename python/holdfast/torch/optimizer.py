# SPDX-License-Identifier: Apache-2.0

"""The optimizer of a PyTorch training loop on a cluster."""

from __future__ import annotations

import contextlib
import ctypes
import math
from collections.abc import Callable, Iterator, Mapping
from typing import Any, Literal

import torch

from holdfast import _arguments, _process, job
from holdfast._loop import Loop
from holdfast.cluster import Cluster, connect
from holdfast.data import Shuffle
from holdfast.errors import Error, Refused
from holdfast.torch._data import seed_all, seed_of, source_of
from holdfast.torch._gradients import Gradients
from holdfast.torch._group import Group
from holdfast.torch._hyperparameters import Hyperparameters
from holdfast.torch._local import facts_of
from holdfast.torch._tables import Tables, Told
from holdfast.torch._turns import Turn, Values
from holdfast.torch._unreached import Unreached
from holdfast.torch._variables import rules_by_slot, slots_of, tensors_of, variables_of
from holdfast.torch.rules import rules_of

# Maximum size of one message: a smaller gradient is sent as a whole, together with the pull.
_EXCHANGE_BYTES = 4 << 20


class Optimizer:
    """Replaces a ``torch.optim`` optimizer; the cluster makes its steps.

    The cluster holds the optimizer's parameters and the moving statistics of batch norm, under
    their names in the model's ``state_dict``. Their first values are those of worker 0's model,
    unless the job resumes from a checkpoint. Each ``step`` pushes the gradient of a batch, and
    copies the values for the next batch into the model::

        opt = holdfast.torch.Optimizer(model, torch.optim.Adam(model.parameters()), steps=3000)
        for x, y in opt.batches(dataset, 100):
            opt.zero_grad()
            loss = torch.nn.functional.cross_entropy(model(x), y)
            loss.backward()
            opt.step(loss)

    The tables of the model's ``Embedding`` and ``EmbeddingBag`` modules are declared as well, and
    ``step`` pushes the gradients of the rows that the batch has used. In this case the worker stays
    in the cluster after ``batches`` ends, until ``close`` or the end of the process, so that the
    rows can be read.

    The following are not in the cluster, but local to each worker: parameters with
    ``requires_grad=False`` or in none of the optimizer's groups, integer buffers, and buffers other
    than the moving statistics. They must be the same in all workers, and after each restart.

    What the script does to a gradient before ``step`` counts, as in plain PyTorch. What it does to
    parameters, groups and rates after the optimizer was made does not reach the cluster, and is
    refused by the next ``step``.

    Args:
        model: The module to train.
        optimizer: An optimizer of ``torch.optim`` for its parameters, which defines the rule and
            its hyperparameters, but makes no steps itself. If None, the cluster holds only the
            model's tables, each of which must have its own optimizer, and the script trains the
            parameters, if there are any.
        steps: Global steps in the whole job; in asynchronous jobs, pushes. Synchronous jobs
            with examples by ticket hand out as many batches as fill all steps.
        scheduler: A scheduler of ``torch.optim.lr_scheduler`` for ``optimizer``, or a schedule of
            Holdfast's. The script need not call its ``step``.
        scheduler_every: Number of steps between calls of ``scheduler.step()`` in the original
            script.
        cluster: The cluster to train on, which the caller closes. Default: the result of
            ``holdfast.connect()``; this worker leaves it when ``batches`` ends or, if there are
            tables, when the process ends.
        accumulate: Number of backward passes per push.
        overlap: Whether gradients are sent while the backward pass goes on. Default: if they
            exceed one message, 4 MiB.
        process_group: A group of ``torch.distributed`` whose ranks act as one worker: gradients are
            added up within the group, and its rank 0 talks to the cluster. Not with tables.
        seed: Seed of the order of examples, and of PyTorch's random numbers in each batch.
        consistency: As for ``holdfast.Cluster.declare``.
        examples: As for ``declare``.
        clipping: As for ``declare``.
        placement: As for ``declare``.
        partitioner: As for ``declare``.
        checkpoints: As for ``declare``.
        lost_workers: As for ``declare``.
        timeouts: As for ``declare``.
        loss_scale: As for ``declare``; multiply the loss by the attribute ``loss_scale``.
        max_consecutive_not_finite: As for ``declare``.
        missing_gradients: What happens if a batch gives a parameter no gradient. PyTorch skips the
            parameter, and the cluster has no such step. "refuse": ``step`` raises an error, unless
            a gradient of zeros does the same. "zeros": it counts as a gradient of zeros, as with
            DDP.
        agree: Whether workers compare what is local to them, the size of the data set, the batch
            size and the order of examples, with each other and with their earlier lives
            (``Cluster.agree``).

    Attributes:
        cluster: The cluster; None in ranks of ``process_group`` other than 0.
        is_chief: Whether this is worker 0.

    Raises:
        TypeError, ValueError: The model, the optimizer or its scheduler cannot be declared; the
            error names what is wrong.
        Refused, Unavailable, JobFailed: As for ``connect`` and ``declare``.
    """

    cluster: Cluster | None

    def __init__(
        self,
        model: Any,
        optimizer: Any,
        *,
        steps: int,
        scheduler: Any = None,
        scheduler_every: int = 1,
        cluster: Cluster | None = None,
        accumulate: int = 1,
        overlap: bool | None = None,
        process_group: Any = None,
        seed: int = 0,
        consistency: job.Consistency | None = None,
        examples: Literal["by_step", "by_ticket"] | None = None,
        clipping: job.GradientClipping | None = None,
        placement: Literal["round_robin", "greedy_by_bytes"] | None = None,
        partitioner: job.Partitioner | None = None,
        checkpoints: job.Checkpoints | None = None,
        lost_workers: job.LostWorkers | None = None,
        timeouts: job.Timeouts | None = None,
        loss_scale: job.LossScale | None = None,
        max_consecutive_not_finite: int | None = None,
        missing_gradients: Literal["refuse", "zeros"] = "refuse",
        agree: bool = True,
    ) -> None:
        accumulate = _arguments.integer("accumulate", accumulate, least=1)
        if missing_gradients not in ("refuse", "zeros"):
            raise ValueError(f'missing_gradients is {missing_gradients!r}, not "refuse" or "zeros"')
        if process_group is not None and overlap:
            raise ValueError("overlap: gradients of a process_group are added up before they leave")
        self._tables = Tables(model)
        if process_group is not None and self._tables.declared:
            raise ValueError(
                f"process_group: the model has tables ({', '.join(self._tables.declared)}), whose "
                "rows only a process with a connection of its own can read: make each rank a "
                "worker"
            )
        has_variables = optimizer is not None
        if not has_variables:
            if not self._tables.declared:
                raise ValueError(
                    "optimizer is None, and the model has no Embedding or EmbeddingBag of "
                    "holdfast.torch: there is nothing to train"
                )
            if scheduler is not None:
                raise ValueError("scheduler: it belongs to an optimizer, which is None")
            # torch makes no optimizer without parameters; this one is not declared.
            optimizer = torch.optim.SGD([torch.nn.Parameter(torch.zeros(0))], lr=1.0)
        rules = rules_of(
            optimizer, steps=steps, scheduler=scheduler, scheduler_every=scheduler_every
        )
        self._tables.check(rules[0] if has_variables else None)
        self._inner = optimizer
        slots = slots_of(model, optimizer.param_groups) if has_variables else []
        variables = variables_of(slots, optimizer.param_groups, rules)
        self._hyperparameters = Hyperparameters(
            optimizer,
            rules,
            scheduler,
            scheduler_every,
            {id(tensor): key for key, tensor in tensors_of(model)},
            {id(slot.tensor) for slot in slots},
        )
        self._unreached = None
        if missing_gradients == "refuse":
            by_slot = rules_by_slot(slots, optimizer.param_groups, rules)
            self._unreached = Unreached(slots, by_slot)
        elements = sum(slot.tensor.numel() for slot in slots)
        if overlap is None:
            overlap = process_group is None and 4 * elements > _EXCHANGE_BYTES
        self._slots = slots
        self._values = Values(slots)
        self._accumulate = accumulate
        self._clips = clipping is not None
        self._seed = seed
        self._loop: Loop | None = None
        # The turn handed out last, and whether it was answered.
        self._turn: Turn | None = None
        self._answered = True
        # The examples of its batch; the current backward pass, and whether there are others before
        # or after it whose gradients must be kept.
        self._examples = 0
        self._pass = 0
        self._keeps_gradients = False
        self._reduced = False
        self._losses: list[float] = []
        self._clip: float | None = None

        self._group = None if process_group is None else Group(process_group, slots)
        self._ranks = 1 if self._group is None else self._group.size
        self._rank = 0 if self._group is None else self._group.rank
        self._gradients = Gradients(
            slots,
            overlap=overlap,
            accumulate=accumulate,
            ranks=self._ranks,
            has_loss_scale=loss_scale is not None,
        )
        # Whether workers compare what is local to them, and whether they have compared their data.
        self._agrees = agree
        self._agreed = False
        self.cluster = None
        self._leaves = cluster is None
        # Distance from one batch of this worker to its next, if the step determines the examples.
        stride = 0
        if self._rank == 0:
            self.cluster = connect() if cluster is None else cluster
            self.cluster.declare(
                variables,
                optimizer=rules[0],
                steps=steps,
                consistency=consistency,
                seed=seed,
                examples=examples,
                clipping=clipping,
                placement=placement,
                partitioner=partitioner,
                checkpoints=checkpoints,
                lost_workers=lost_workers,
                timeouts=timeouts,
                loss_scale=loss_scale,
                max_consecutive_not_finite=max_consecutive_not_finite,
                tables=self._tables.declared,
            )
            if agree:
                self._agree_on(facts_of(model, slots))
            self._tables.attach(self.cluster)
            if not isinstance(consistency, job.Asynchronous) and examples != "by_ticket":
                replicas = getattr(consistency, "total_num_replicas", None)
                stride = replicas or self.cluster.replicas
        else:
            _process.end_as_daemons_do()
        if self._group is not None:
            stride = self._group.agree(stride)
        self._stride = stride or None
        self.is_chief = self.cluster is not None and self.cluster.is_chief

    def __repr__(self) -> str:
        return f"holdfast.torch.Optimizer({self._inner!r})"

    # The loop.

    def batches(
        self,
        data: Any,
        size: int | None = None,
        *,
        shuffle: Shuffle = "full",
        shuffle_block: int = 4096,
        ids: Callable[[Any], Mapping[Any, Any]] | None = None,
    ) -> Iterator[Any]:
        """Hands out the batches for which this worker computes gradients, until the job is done.

        The examples in a batch depend only on its index in the training stream, as for
        ``holdfast.batch_indices``. Each batch must be answered by ``step`` or ``skip``. When the
        job is done, the model has its final values.

        Before each batch the random numbers of PyTorch, NumPy (``np.random``) and Python's
        ``random`` are seeded from the seed and the batch, so that dropout and augmentations are the
        same in whichever worker computes it, and however often.

        A loop that was left, by ``break`` or by Ctrl-C, can be entered again, and begins with the
        batch that was not answered.

        Args:
            data: A map-style dataset, or a ``DataLoader`` of one, whose ``dataset``,
                ``batch_size``, ``collate_fn`` and processes are used, but not its order.
            size: Number of examples in a backward pass. Default: the loader's ``batch_size``.
            shuffle: How random the order is; as for ``batch_indices``.
            shuffle_block: As for ``batch_indices``.
            ids: Called with the examples of a batch, in the form in which they are yielded; returns
                the ids that the model will look up, by its ``Embedding`` and ``EmbeddingBag``
                modules. The rows of all tables are then read in one call, and if batches are
                assigned by step, they arrive with the other values; for this, batches are loaded
                one ahead. Ids that it leaves out are read when they are looked up.

        Yields:
            The examples of a batch, collated. With ``accumulate``, or in the ranks of a
            ``process_group``, a batch is handed out in pieces of ``size`` examples.

        Raises:
            TypeError, ValueError: The data cannot be handed out by index.
            Error: A batch was not answered, or the model was changed after the optimizer was made.
            Refused: Another worker has other data.
            Fenced, JobFailed, Stopped, Unavailable: The worker cannot go on.
        """
        pieces = self._ranks * self._accumulate
        first = self._rank * self._accumulate
        own = range(first, first + self._accumulate)
        source, size = source_of(
            data,
            size,
            seed=self._seed,
            pieces=pieces,
            own=own,
            stride=self._stride,
            shuffle=shuffle,
            shuffle_block=shuffle_block,
        )
        told = None
        if ids is not None:
            if not self._tables.declared:
                raise ValueError("ids: the model has no holdfast.torch.Embedding or EmbeddingBag")
            told = Told(source, self._tables, ids, own, self._stride)
        if self._agrees and not self._agreed and self.cluster is not None:
            self._agree_on(
                {
                    "dataset length": source.examples,
                    "batch size": pieces * size,
                    "seed of the order of examples": self._seed,
                    "shuffle": shuffle,
                    "shuffle_block": shuffle_block,
                }
            )
            self._agreed = True
        if self._turn is None:
            self._values.check_declared()
        if self._loop is None and self.cluster is not None:
            place = self._values.place if self._group is None else None
            self._loop = self.cluster._begin(place)
        if self._turn is None or self._group is None:
            self._take_turn()
        assert self._turn is not None
        self._examples = pieces * size
        try:
            while not self._turn.done:
                turn = self._turn
                if self.cluster is not None:
                    _process.hands_out(self.cluster)
                if told is not None:
                    told.begin(turn.batch, self.waiting_for_input)
                for number, index in enumerate(own):
                    with self.waiting_for_input():
                        examples = (told or source).take((turn.batch, index))
                    seed_all(seed_of(self._seed, (turn.batch, index), "model"))
                    self._begin_pass(number)
                    yield examples
                    self._gradients.loop = None
                    if self._answered:
                        break
                if not self._answered:
                    raise Error(
                        f"batch {turn.batch} was neither pushed nor skipped: call step() or skip() "
                        "before asking for the next batch"
                    )
        finally:
            self._gradients.loop = None
            source.close()
        if self.cluster is not None:
            _process.loop_ended(self.cluster)
        # Rows are read from the cluster even when the job is done.
        if self._leaves and not self._tables.declared:
            self.close()

    def waiting_for_input(self) -> contextlib.AbstractContextManager[None]:
        """Counts the time in its ``with`` statement as a wait for input.

        Like ``Cluster.waiting_for_input``, for data that the script itself loads in the body of the
        loop. Loading by ``batches`` counts as input anyway.
        """
        return contextlib.nullcontext() if self._loop is None else self._loop.waiting_for_input()

    def zero_grad(self, set_to_none: bool = True) -> None:
        """Resets the gradients of all parameters, except between the passes of ``accumulate``."""
        if not self._keeps_gradients:
            self._inner.zero_grad(set_to_none=set_to_none)
            self._tables.zero_grad()
            self._gradients.on_zero_grad()

    def clip_grad_norm(self, max_norm: float) -> Any:
        """Scales the gradient down so that its norm is at most ``max_norm``.

        Does what ``torch.nn.utils.clip_grad_norm_`` does, but the factor is sent with the push: the
        parameters' ``grad`` do not change, and may already be in transit. It includes the rows of
        tables and, with ``process_group``, all ranks. As with ``clipping=``, each worker's gradient
        is clipped before the mean is taken.

        With ``accumulate`` it takes effect in the last pass.

        Returns:
            The norm before clipping, as a tensor.

        Raises:
            Error: A gradient was changed since another call clipped it.
        """
        self._need_turn()
        if not self._is_last_pass():
            return self._norm()
        if self._group is not None:
            self._reduce(self._group)
            norm = self._group.norm()
        else:
            self._gradients.check_clipped()
            norm = self._norm()
            self._gradients.on_clip()
        before = 1.0 if self._clip is None else self._clip
        norm = norm * before
        factor = float(max_norm) / (float(norm) + 1e-6)
        # A gradient whose norm is not a number does not count anyway.
        self._clip = before * min(1.0, factor) if factor >= 0 else before
        if self._clip == 0:
            # A push with this factor would change nothing, and zeros are a gradient.
            self._clip = None
            if self._group is not None:
                self._group.multiply(0.0)
            else:
                self._gradients.multiply(0.0)
                self._tables.multiply(0.0)
        return norm

    # torch.amp.GradScaler then calls ``step`` for every batch, with what it has found in attributes
    # that exist during the call: ``found_inf``, and ``grad_scale`` unless gradients are unscaled.
    _step_supports_amp_scaling = True

    def step(self, loss: Any = None, *, examples: int | None = None) -> None:
        """Pushes the gradient, and copies the values for the next batch into the model.

        With ``accumulate`` only the last pass of a batch pushes. ``GradScaler.step(opt, loss)``
        works; a batch for which the scaler skips the step counts as not finite.

        Args:
            loss: The mean loss over the examples of this pass, for the job's status: a tensor or a
                number. Default: not reported.
            examples: The batch's weight in the mean of the step, a whole number. If examples have
                weights: the sum of their weights, in a unit shared by all workers. Default: the
                batch's size. Not with ``accumulate`` or ``process_group``.

        Raises:
            TypeError, ValueError: ``loss`` or ``examples`` is not valid.
            Error: There is no current batch; a parameter, a parameter group or a rate was changed;
                a parameter has no gradient; gradients were reset between the passes of
                ``accumulate``, or changed before the ranks of a ``process_group`` have added them
                up; or the batch uses more rows than its table's ``max_rows_per_push``.
            Fenced, JobFailed, Stopped, Unavailable: The worker cannot go on.
        """
        self._need_turn()
        if examples is None:
            examples = self._examples
        elif self._accumulate > 1 or self._group is not None:
            raise ValueError("examples: passes that are added up count by their size")
        else:
            examples = _arguments.integer("examples", examples, most=_arguments.MOST_EXAMPLES)
        told = _loss_of(loss)
        scaled = hasattr(self, "found_inf")
        assert self._turn is not None
        self._hyperparameters.check(None if self._stride is None else self._turn.step)
        self._gradients.loop = None
        if not self._is_last_pass():
            if scaled:
                raise Error(
                    "GradScaler.step() was called before the last pass of accumulate=: call it, "
                    "and update(), once for all passes"
                )
            self._losses += told
            self._keeps_gradients = True
            return
        self._values.check_loaded()
        self._gradients.check_passes()
        if scaled and self._unscale(
            getattr(self, "grad_scale", None), getattr(self, "found_inf", 0)
        ):
            # A loss that is not a number makes the push count as not finite.
            self._push(None, examples, math.nan)
            return
        if self._group is None:
            if self._unreached is not None:
                self._unreached.check(self._gradients.reached())
            assert self._loop is not None
            pointers = self._gradients.hand_in(self._loop)
            self._tables.hand_in(self._row_scale())
            self._losses += told
            self._push(pointers, examples, self._mean_loss())
            return
        self._reduce(self._group)
        self._gradients.check_unchanged()
        self._losses += told
        mean = self._group.loss(self._losses)
        pointers = self._group.pointers() if self._rank == 0 else None
        self._push(pointers, examples, mean)

    def skip(self) -> None:
        """Answers the current batch without a gradient."""
        self._need_turn()
        self._push(None, 0, None)

    def finish(self) -> None:
        """Ends the job for all workers before its last step, as ``Cluster.finish`` does.

        The loop then ends, and the model has the final values. With ``process_group`` every rank
        calls it, as it calls ``step``.

        Raises:
            Fenced, JobFailed, Stopped, Unavailable: The job did not end this way.
        """
        if self.cluster is not None:
            self.cluster.finish()
        if self._turn is not None and not self._turn.done:
            self._answered = True
            self._keeps_gradients = False
            self._take_turn()

    @property
    def loss_scale(self) -> float:
        """The factor by which to multiply the loss before the backward pass, in float16 jobs."""
        self._need_turn()
        assert self._turn is not None
        return self._turn.loss_scale

    def close(self) -> None:
        """Leaves the cluster; if the job is not done, another worker may take this one's place."""
        if self.cluster is not None and self._leaves:
            self.cluster.close()

    # The interface of torch.optim.Optimizer.

    @property
    def param_groups(self) -> list[dict[str, Any]]:
        """The parameter groups, for reading only.

        The cluster has their hyperparameters from the start: the next ``step`` refuses changes. A
        changing learning rate must be declared, with ``scheduler=``.
        """
        groups: list[dict[str, Any]] = self._inner.param_groups
        return groups

    @property
    def defaults(self) -> dict[str, Any]:
        """The defaults of ``torch.optim``'s optimizer."""
        defaults: dict[str, Any] = self._inner.defaults
        return defaults

    def state_dict(self) -> dict[str, Any]:
        """The hyperparameters; the optimizer's state is in the checkpoints of the cluster."""
        state: dict[str, Any] = self._inner.state_dict()
        return state

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Refused: a job resumes from the cluster's checkpoint by itself."""
        raise Error(
            "the optimizer's state is kept by the cluster, and a job resumes from its last "
            "checkpoint by itself (checkpoints=holdfast.Checkpoints(...)); to begin with other "
            "parameters, load them into the model before making the optimizer"
        )

    def add_param_group(self, param_group: dict[str, Any]) -> None:
        """Refused: the variables of a job are declared once."""
        raise Error(
            "the variables of a job are declared once: give torch's optimizer all groups before "
            "making holdfast.torch.Optimizer"
        )

    # Parts.

    def _agree_on(self, facts: Mapping[str, str | int]) -> None:
        assert self.cluster is not None
        try:
            self.cluster.agree(facts)
        except Refused as error:
            raise error._adding("with agree=False, the optimizer compares nothing") from None

    def _need_turn(self) -> None:
        if self._turn is None or self._answered or self._turn.done:
            raise Error("there is no current batch: it is for the body of a loop over batches()")

    def _is_last_pass(self) -> bool:
        return self._pass == self._accumulate - 1

    def _begin_pass(self, number: int) -> None:
        self._pass = number
        self._keeps_gradients = number > 0
        self._answered = False
        if number == 0:
            self._losses.clear()
            self._clip = None
        self._gradients.on_pass(number)
        # A GradScaler leaves them if a step raises an exception.
        self.__dict__.pop("found_inf", None)
        self.__dict__.pop("grad_scale", None)
        if self._gradients.overlaps and self._is_last_pass():
            self._gradients.loop = self._loop

    def _mean_loss(self) -> float | None:
        return sum(self._losses) / len(self._losses) if self._losses else None

    def _row_scale(self) -> float:
        """The factor for the sum of the passes' gradients of rows."""
        assert self._turn is not None
        return 1.0 / (self._accumulate * self._turn.loss_scale)

    def _norm(self) -> Any:
        sums = self._tables.sums(self._row_scale())
        return torch.nn.utils.get_total_norm([*self._gradients.all(), *sums])

    def _unscale(self, grad_scale: Any, found_inf: Any) -> bool:
        """Takes over what GradScaler has found; returns whether it skips the step.

        Args:
            grad_scale: The factor that is in the gradients; None if they are unscaled.
            found_inf: Above 0 if one of them is infinite or NaN.
        """
        if self._group is not None:
            raise Error(
                "GradScaler: each rank of process_group would find its own infinities: pass "
                "loss_scale=holdfast.LossScale(), and multiply the loss by opt.loss_scale"
            )
        if grad_scale is None and self._tables.declared:
            raise Error(
                "GradScaler.unscale_() does not reach the rows of tables: leave it out, or use "
                "loss_scale=holdfast.LossScale(), and multiply the loss by opt.loss_scale"
            )
        if float(found_inf) != 0:
            return True
        if grad_scale is None:
            return False
        factor = 1.0 / float(grad_scale)
        if factor > 1 or self._clips:
            # The cluster clips by the norm of what is pushed.
            self._gradients.multiply(factor)
            self._tables.multiply(factor)
        else:
            self._clip = factor * (1.0 if self._clip is None else self._clip)
        return False

    def _reduce(self, group: Group) -> None:
        if self._reduced:
            return
        self._gradients.check_unchanged()
        reached = group.any_of(self._gradients.reached())
        if self._unreached is not None and group.is_root:
            self._unreached.check(reached)
        self._reduced = True
        values: list[Any] = [slot.tensor.grad for slot in self._slots]
        for i, value in enumerate(values):
            if value is not None:
                values[i] = value.float() * self._gradients.late(value)
        for i, value in self._gradients.statistics():
            values[i] = value / self._ranks
        group.reduce(values)

    def _push(self, pointers: Any, examples: int, loss: float | None) -> None:
        """Ends the turn, and takes the next one. Without pointers it contributes nothing."""
        if self._loop is not None:
            try:
                if pointers is None and examples == 0:
                    self._loop.contribute_nothing()
                else:
                    numbers = _arguments.of_push(examples, loss, self._clip)
                    self._loop.push_from(pointers or self._nothing(), *numbers)
            except BaseException:
                self._hyperparameters.on_interrupt()
                if self._group is not None:
                    self._group.give_up()
                raise
        self._answered = True
        self._keeps_gradients = False
        self._take_turn()

    def _nothing(self) -> Any:
        return (ctypes.c_void_p * len(self._slots))()

    def _take_turn(self) -> None:
        """Takes the loop's turn, which after an interrupt may be the same one again."""
        self._reduced = False
        if self._group is not None and self._loop is None:
            turn = self._group.receive()
        else:
            assert self._loop is not None
            try:
                turn = Turn.of(self._loop)
                if self._group is not None:
                    self._group.share(turn, self._loop)
            except BaseException:
                if self._group is not None:
                    self._group.give_up()
                raise
        self._tables.on_turn()
        self._tables.in_turn = not turn.done
        self._gradients.in_turn = False
        if self._turn is not None and 0 <= turn.number == self._turn.number and not turn.done:
            self._gradients.on_turn_again()
        else:
            if self._group is None:
                assert self._loop is not None
                self._values.load(self._loop)
            else:
                self._values.loaded()
            self._gradients.on_turn(1.0 if turn.done else turn.loss_scale)
        self._turn = turn


def _loss_of(loss: Any) -> list[float]:
    """The loss that the script reports; none if it reports none."""
    if loss is None:
        return []
    if callable(loss) and not isinstance(loss, torch.Tensor):
        raise TypeError(
            "step() takes the loss, and no closure: compute the loss and call backward() in the "
            "body of the loop"
        )
    if isinstance(loss, torch.Tensor):
        if loss.numel() != 1:
            raise ValueError(
                f"loss has shape {tuple(loss.shape)}: it is one number, such as a mean"
            )
        return [float(loss.item())]
    return [_arguments.number("loss", loss)]
