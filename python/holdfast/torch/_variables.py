# SPDX-License-Identifier: Apache-2.0

"""The part of a model that the cluster holds: trained parameters and batch norm's statistics."""

from __future__ import annotations

import dataclasses
import itertools
import re
import typing
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np
import torch

from holdfast import job

_DTYPES = (torch.float32, torch.bfloat16, torch.float16)


@dataclasses.dataclass
class Slot:
    """A variable, and the tensor of the model that it represents.

    Attributes:
        key: The tensor's name in the model.
        name: The variable's name; see ``names_of``.
        holder: A parameter, or the module that has the buffer. A module replaces its buffers when
            it is moved to another device or dtype, and keeps its parameters.
        buffer: The buffer's name in the module; None for a parameter.
        kept: For a statistic, the share that a step keeps, 1 - momentum, in float32.
        at: For a statistic, the value that the cluster has, in float32.
        begun: For a statistic, the value with which the body of the loop began.
    """

    key: str
    name: str
    holder: Any
    buffer: str | None = None
    kept: float | None = None
    at: Any = None
    begun: Any = None

    @property
    def tensor(self) -> Any:
        """The parameter, or the module's current buffer."""
        return self.holder if self.buffer is None else getattr(self.holder, self.buffer)

    @property
    def direct(self) -> bool:
        """Whether the library can read and write the tensor's memory."""
        tensor = self.tensor
        return bool(
            tensor.dtype is torch.float32 and tensor.device.type == "cpu" and tensor.is_contiguous()
        )


# torch.compile puts a module's original into an attribute of this name.
_COMPILED = "_orig_mod."


def plain_key(key: str) -> str:
    """A tensor's name in the model that was compiled, if it was."""
    return key.replace(_COMPILED, "")


def names_of(keys: Iterable[str]) -> dict[str, str]:
    """The names of variables for tensors with these names in a model.

    A compiled model has the variables of the plain one. Characters that names of variables cannot
    have become "_", and a name that would begin with one of "_-./" begins with "x"; names that are
    then the same get a number.
    """
    names: dict[str, str] = {}
    taken: set[str] = set()
    for key in keys:
        name = re.sub(r"[^A-Za-z0-9_./-]", "_", plain_key(key))
        name = name if re.match(r"[A-Za-z0-9]", name) else "x" + name
        different, number = name, 1
        while different in taken:
            number += 1
            different = f"{name}-{number}"
        taken.add(different)
        names[key] = different
    return names


def slots_of(model: Any, groups: Sequence[Mapping[str, Any]]) -> list[Slot]:
    """The variables of a model in the order in which they are declared.

    Statistics come first: the library sends variables in reverse order of declaration, as a
    backward pass makes gradients, and statistics are handed in at the end. Parameters without
    elements have nothing to train, and are left out.

    Raises:
        TypeError, ValueError: The model cannot be trained; the error names the parameter.
    """
    known = dict(_parameters_by_id(model))
    trained: set[int] = set()
    for i, group in enumerate(groups):
        for j, parameter in enumerate(group["params"]):
            if id(parameter) not in known:
                raise ValueError(
                    f"param_groups[{i}]['params'][{j}] of the optimizer, of shape "
                    f"{tuple(parameter.shape)}, is not a parameter of the model"
                )
            if parameter.requires_grad:
                trained.add(id(parameter))
    names = names_of(key for key, _ in tensors_of(model))
    parameters = [
        Slot(key, names[key], parameter)
        for key, parameter in model.named_parameters()
        if id(parameter) in trained and parameter.numel() > 0
    ]
    if not parameters:
        raise ValueError(
            "the optimizer has no parameter that requires a gradient; to train only tables, "
            "pass None as the optimizer"
        )
    statistics = [
        Slot(key, names[key], module, buffer, kept)
        for key, module, buffer, kept in _statistics_of(model)
        if getattr(module, buffer).numel() > 0
    ]
    for slot in [*statistics, *parameters]:
        _check(slot)
    _check_apart(parameters)
    return [*statistics, *parameters]


def variables_of(
    slots: Sequence[Slot],
    groups: Sequence[Mapping[str, Any]],
    rules: Sequence[job.Optimizer],
) -> dict[str, job.Variable]:
    """The declaration: first values are the model's, and rules those of the groups."""
    return {
        slot.name: job.Variable(
            tuple(slot.tensor.shape),
            slot.tensor.detach().float().cpu().numpy(),
            optimizer=rule,
            moving_average=slot.kept,
        )
        for slot, rule in zip(slots, rules_by_slot(slots, groups, rules), strict=True)
    }


def rules_by_slot(
    slots: Sequence[Slot],
    groups: Sequence[Mapping[str, Any]],
    rules: Sequence[job.Optimizer],
) -> list[job.Optimizer | None]:
    """The rule of each variable; None for statistics."""
    rule_of = {
        id(parameter): rule
        for group, rule in zip(groups, rules, strict=True)
        for parameter in group["params"]
    }
    return [rule_of.get(id(slot.tensor)) for slot in slots]


def _parameters_by_id(model: Any) -> typing.Iterator[tuple[int, str]]:
    for name, parameter in model.named_parameters():
        if isinstance(parameter, torch.nn.parameter.UninitializedParameter):
            raise ValueError(
                f'parameter "{name}" has no shape yet: run one batch through the model before '
                "making the optimizer"
            )
        yield id(parameter), name


def tensors_of(model: Any) -> typing.Iterator[tuple[str, Any]]:
    """The names and tensors of all parameters and buffers."""
    yield from model.named_parameters()
    yield from model.named_buffers()


def _statistics_of(model: Any) -> typing.Iterator[tuple[str, Any, str, float]]:
    """Name, module, name in the module and share that is kept, of each statistic."""
    for path, module in model.named_modules():
        # The base class of batch norm and instance norm.
        if not isinstance(module, torch.nn.modules.batchnorm._NormBase):
            continue
        if module.running_mean is None or module.momentum == 0:
            continue
        if module.momentum is None:
            raise ValueError(
                f'"{path}" averages its statistics over all batches (momentum=None), which depends '
                "on the batches that each worker has seen: give it a momentum, as 0.1"
            )
        kept = float(np.float32(1 - module.momentum))
        for name in ("running_mean", "running_var"):
            yield f"{path}.{name}" if path else name, module, name, kept


def _check(slot: Slot) -> None:
    tensor = slot.tensor
    if tensor.dtype not in _DTYPES:
        raise TypeError(
            f'"{slot.key}" has dtype {tensor.dtype}: the cluster holds float32, for parameters of '
            "float32, bfloat16 and float16; convert the model with .float()"
        )
    if tensor.is_sparse:
        raise TypeError(f'"{slot.key}" is sparse: the cluster holds dense tensors')
    if tensor.device.type == "meta":
        raise ValueError(f'"{slot.key}" is on the device "meta" and has no values')


def _check_apart(slots: Iterable[Slot]) -> None:
    """Refuses parameters that share memory without being the same: values are written to each."""
    extents = sorted(
        (slot.tensor.device.type, slot.tensor.data_ptr(), slot.tensor.nbytes, slot.key)
        for slot in slots
        if slot.tensor.is_contiguous()
    )
    for (device, begin, size, first), (other, address, _, second) in itertools.pairwise(extents):
        if device == other and address < begin + size:
            raise ValueError(
                f'"{first}" and "{second}" are different parameters that share memory: tie them '
                "by making them the same parameter, or give one of them memory of its own"
            )
