# SPDX-License-Identifier: Apache-2.0

"""Holdfast: training loops in Python on a cluster of parameter servers.

A script connects, declares its variables, and computes the gradients of the batches that
it is given; the cluster holds the variables, makes the steps, and absorbs failures::

    with holdfast.connect() as cluster:
        cluster.declare(variables, optimizer=holdfast.Sgd(learning_rate=0.1), steps=3000)
        for batch in cluster.batches():
            values = cluster.pull()
            ...
            cluster.push(gradients, loss=loss, examples=examples)
"""

from holdfast._loop import Outcomes
from holdfast._native import library as _library
from holdfast._status import Status
from holdfast.checkpoint import Checkpoint, StoredTable, load_checkpoint
from holdfast.cluster import Cluster, connect
from holdfast.data import batch_indices, digest
from holdfast.errors import (
    Error,
    Fenced,
    JobFailed,
    Refused,
    RolledBack,
    Stopped,
    Unavailable,
)
from holdfast.job import (
    Adagrad,
    Adam,
    AdamW,
    Asynchronous,
    Checkpoints,
    Compression,
    Consistency,
    Constant,
    Cosine,
    EarlyStopping,
    Evaluation,
    Exponential,
    FixedShards,
    Ftrl,
    Glorot,
    GradientClipping,
    He,
    Initializer,
    KeepBest,
    LearningRateSchedule,
    LossScale,
    LostWorkers,
    MaxSize,
    Metric,
    MinSize,
    Momentum,
    Normal,
    Optimizer,
    Partitioner,
    Piece,
    Piecewise,
    Polynomial,
    RmsProp,
    Sgd,
    Synchronous,
    Timeouts,
    TruncatedNormal,
    Uniform,
    Variable,
    Zeros,
)
from holdfast.table import EmbeddingTable

__version__: str = _library.holdfast_version().decode()

__all__ = [
    "Adagrad",
    "Adam",
    "AdamW",
    "Asynchronous",
    "Checkpoint",
    "Checkpoints",
    "Cluster",
    "Compression",
    "Consistency",
    "Constant",
    "Cosine",
    "EarlyStopping",
    "EmbeddingTable",
    "Error",
    "Evaluation",
    "Exponential",
    "Fenced",
    "FixedShards",
    "Ftrl",
    "Glorot",
    "GradientClipping",
    "He",
    "Initializer",
    "JobFailed",
    "KeepBest",
    "LearningRateSchedule",
    "LossScale",
    "LostWorkers",
    "MaxSize",
    "Metric",
    "MinSize",
    "Momentum",
    "Normal",
    "Optimizer",
    "Outcomes",
    "Partitioner",
    "Piece",
    "Piecewise",
    "Polynomial",
    "Refused",
    "RmsProp",
    "RolledBack",
    "Sgd",
    "Status",
    "Stopped",
    "StoredTable",
    "Synchronous",
    "Timeouts",
    "TruncatedNormal",
    "Unavailable",
    "Uniform",
    "Variable",
    "Zeros",
    "batch_indices",
    "connect",
    "digest",
    "load_checkpoint",
]
