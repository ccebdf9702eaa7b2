# SPDX-License-Identifier: Apache-2.0

"""Makes state dicts from checkpoints, without a cluster."""

from __future__ import annotations

import os
from typing import Any

import torch

from holdfast import Checkpoint, load_checkpoint
from holdfast.torch._variables import names_of, tensors_of


def state_dict(
    checkpoint: Checkpoint | str | os.PathLike[str], model: Any = None
) -> dict[str, Any]:
    """The tensors of a checkpoint, by the names of the model's parameters and buffers.

    A checkpoint holds what the job has trained, in float32: parameters, and the moving statistics
    of batch norm. With ``model`` the result is complete: it includes the model's own tensors that
    are not in the checkpoint, such as frozen parameters and counters, and every name of a tied
    parameter, and has the model's dtypes.

    Args:
        checkpoint: The result of ``holdfast.load_checkpoint``, or a path for it.
        model: A module of the class that was trained. Default: only what the checkpoint holds.

    Returns:
        Tensors for ``load_state_dict``; copies, which do not change with the model.

    Raises:
        FileNotFoundError: There is no checkpoint.
        ValueError: The checkpoint belongs to another model.
    """
    if not isinstance(checkpoint, Checkpoint):
        checkpoint = load_checkpoint(checkpoint)
    values = {name: torch.from_numpy(value) for name, value in checkpoint.values.items()}
    if model is None:
        return {name: value.clone() for name, value in values.items()}
    own = model.state_dict(keep_vars=True)
    tensors = dict(tensors_of(model))
    key_of = {name: key for key, name in names_of(tensors).items()}
    unknown = [name for name in values if name not in key_of]
    if unknown:
        raise ValueError(f"{type(model).__name__} has no {', '.join(unknown)}")
    # A tied parameter was trained under one of its names.
    trained = {id(tensors[key_of[name]]): value for name, value in values.items()}
    whole: dict[str, Any] = {}
    for name, tensor in own.items():
        value = trained.get(id(tensor), tensor.detach())
        if value.shape != tensor.shape:
            raise ValueError(
                f"{name} has shape {tuple(value.shape)} in the checkpoint, and "
                f"{tuple(tensor.shape)} in {type(model).__name__}"
            )
        whole[name] = value.to(tensor.dtype, copy=True)
    return whole


def save_state_dict(
    checkpoint: Checkpoint | str | os.PathLike[str],
    path: str | os.PathLike[str],
    model: Any = None,
) -> None:
    """Writes ``state_dict(checkpoint, model)`` for ``torch.load(path, weights_only=True)``.

    ``holdfast checkpoint export DIR --output=FILE.safetensors`` writes safetensors from any
    checkpoint.

    Args:
        checkpoint: As for ``state_dict``.
        path: The file to write.
        model: As for ``state_dict``.
    """
    torch.save(state_dict(checkpoint, model), path)
