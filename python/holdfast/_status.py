# SPDX-License-Identifier: Apache-2.0

"""The state of a job, as reported by the coordinator."""

from __future__ import annotations

import dataclasses
import json
from typing import Any


@dataclasses.dataclass(frozen=True)
class Status:
    """The state of the job.

    Attributes:
        phase: "STARTING", "TRAINING", "STOPPING", "DONE", "STOPPED" or "FAILED".
        reason: Why it has failed.
        generation: 1 at first, and one more after each rollback.
        global_step: Number of steps; in asynchronous jobs, of applied pushes.
        total_steps: Number of steps in the whole job.
        durable_step: Step of the newest checkpoint on disk; 0 if there is none.
        examples: Examples behind these steps.
        train_loss: Mean loss over the examples of the last 100 steps; None if no worker has
            reported one.
        waiting_for: What the job is waiting for; "" if nothing is late.
        everything: The whole answer, GetStatusResponse of proto/coordinator.proto, in protobuf's
            JSON mapping.
    """

    phase: str
    reason: str
    generation: int
    global_step: int
    total_steps: int
    durable_step: int
    examples: int
    train_loss: float | None
    waiting_for: str
    everything: dict[str, Any]

    @staticmethod
    def _of(text: str) -> Status:
        everything = json.loads(text)
        state = everything.get("state", {})
        return Status(
            phase=state.get("phase", "STARTING"),
            reason=state.get("reason", ""),
            generation=int(everything.get("generation", 0)),
            global_step=int(everything.get("global_step", 0)),
            total_steps=int(everything.get("total_steps", 0)),
            durable_step=int(everything.get("durable_step", 0)),
            examples=int(everything.get("examples", 0)),
            train_loss=everything.get("train_loss"),
            waiting_for=everything.get("waiting_for", ""),
            everything=everything,
        )
