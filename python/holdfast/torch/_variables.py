# SPDX-License-Identifier: Apache-2.0

"""The part of a model that the cluster holds: trained parameters and batch norm's statistics."""

from __future__ import annotations

import dataclasses
import typing
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import torch

from holdfast import job

_DTYPES = (torch.float32, torch.bfloat16, torch.float16)


@dataclasses.dataclass
class Slot:
    """A variable, and the tensor of the model that it represents.

    Attributes:
        name: The name in the model's state_dict.
        tensor: A parameter, or a buffer.
        kept: For a statistic, the share that a step keeps, 1 - momentum, in float32.
        at: For a statistic, the tensor's value when the batch was handed out, in float32.
    """

    name: str
    tensor: Any
    kept: float | None = None
    at: Any = None

    @property
    def direct(self) -> bool:
        """Whether the library can read and write the tensor's memory."""
        tensor = self.tensor
        return bool(
            tensor.dtype is torch.float32 and tensor.device.type == "cpu" and tensor.is_contiguous()
        )


def slots_of(model: Any, groups: Sequence[Mapping[str, Any]]) -> list[Slot]:
    """The variables of a model in the order in which they are declared.

    Statistics come first: the library sends variables in reverse order of declaration, as a
    backward pass makes gradients, and statistics are handed in at the end.

    Raises:
        TypeError, ValueError: The model cannot be trained; the error names the parameter.
    """
    names = dict(_parameters_by_id(model))
    trained: set[int] = set()
    for i, group in enumerate(groups):
        for j, parameter in enumerate(group["params"]):
            if id(parameter) not in names:
                raise ValueError(
                    f"param_groups[{i}]['params'][{j}] of the optimizer, of shape "
                    f"{tuple(parameter.shape)}, is not a parameter of the model"
                )
            if parameter.requires_grad:
                trained.add(id(parameter))
    parameters = [
        Slot(name, parameter)
        for name, parameter in model.named_parameters()
        if id(parameter) in trained
    ]
    if not parameters:
        raise ValueError(
            "the optimizer has no parameter that requires a gradient; to train only tables, "
            "pass None as the optimizer"
        )
    statistics = list(_statistics_of(model))
    for slot in [*statistics, *parameters]:
        _check(slot)
    return [*statistics, *parameters]


def variables_of(
    slots: Sequence[Slot],
    groups: Sequence[Mapping[str, Any]],
    rules: Sequence[job.Optimizer],
) -> dict[str, job.Variable]:
    """The declaration: first values are the model's, and rules those of the groups."""
    rule_of = {
        id(parameter): rule
        for group, rule in zip(groups, rules, strict=True)
        for parameter in group["params"]
    }
    return {
        slot.name: job.Variable(
            tuple(slot.tensor.shape),
            slot.tensor.detach().float().cpu().numpy(),
            optimizer=rule_of.get(id(slot.tensor)),
            moving_average=slot.kept,
        )
        for slot in slots
    }


def _parameters_by_id(model: Any) -> typing.Iterator[tuple[int, str]]:
    for name, parameter in model.named_parameters():
        if isinstance(parameter, torch.nn.parameter.UninitializedParameter):
            raise ValueError(
                f'parameter "{name}" has no shape yet: run one batch through the model before '
                "making the optimizer"
            )
        yield id(parameter), name


def _statistics_of(model: Any) -> typing.Iterator[Slot]:
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
            whole = f"{path}.{name}" if path else name
            yield Slot(whole, getattr(module, name), kept)


def _check(slot: Slot) -> None:
    tensor = slot.tensor
    if tensor.dtype not in _DTYPES:
        raise TypeError(
            f'"{slot.name}" has dtype {tensor.dtype}: the cluster holds float32, for parameters of '
            "float32, bfloat16 and float16; convert the model with .float()"
        )
    if tensor.is_sparse:
        raise TypeError(f'"{slot.name}" is sparse: the cluster holds dense tensors')
    if tensor.device.type == "meta":
        raise ValueError(f'"{slot.name}" is on the device "meta" and has no values')
