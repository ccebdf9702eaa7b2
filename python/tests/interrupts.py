# SPDX-License-Identifier: Apache-2.0

"""Interrupts training loops at random moments, as Ctrl-C does, and proves what counted.

By hand, with more interrupts than the test suite has time for:

    run.sh python/tests/interrupts.py {by_step,by_ticket,add,rows} [interrupts] [seed]
"""

from __future__ import annotations

import random
import signal
import sys
from collections.abc import Callable
from typing import Any

import numpy as np
from local_cluster import LocalCluster

import holdfast

FLOAT32 = np.float32
_AGAIN_SECONDS = 0.05
# Gradients that are sent before all were handed in.
LARGE = (2 << 20) + 3


def interrupt(loop: Callable[[], object], *, times: int, seconds: float, seed: int) -> int:
    """Calls ``loop`` until it returns, and raises KeyboardInterrupt in it at random moments.

    Args:
        loop: Enters a training loop again each time, and returns when the job is done. It may be
            called once more after that.
        times: How often to interrupt it. It has to do so much that this is reached.
        seconds: Mean time to an interrupt.
        seed: Of the moments, as far as the machine is not random itself.

    Returns:
        How often it was interrupted.
    """
    moments = random.Random(seed)

    def strike(number: int, frame: object) -> None:
        raise KeyboardInterrupt

    def tell(unraisable: Any) -> None:
        if unraisable.exc_type is not KeyboardInterrupt:
            sys.__unraisablehook__(unraisable)

    before = signal.signal(signal.SIGALRM, strike)
    sys.unraisablehook = tell
    struck = 0
    try:
        while True:
            try:
                # Python drops exceptions that are raised while an object is destroyed: then another
                # one follows.
                if struck < times:
                    moment = moments.uniform(1e-6, 2 * seconds)
                    signal.setitimer(signal.ITIMER_REAL, moment, _AGAIN_SECONDS)
                loop()
                signal.setitimer(signal.ITIMER_REAL, 0)
                return struck
            except KeyboardInterrupt:
                signal.setitimer(signal.ITIMER_REAL, 0)
                struck += 1
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)
        sys.unraisablehook = sys.__unraisablehook__


def one_hot(batch: int, count: int) -> np.ndarray:
    """A gradient with which a step of rate 1 adds 1 to the element of the batch."""
    gradient = np.zeros(count, FLOAT32)
    gradient[batch] = -1
    return gradient


def all_count_once(counts: Any) -> None:
    """Checks the variable to which each batch has added ``one_hot``."""
    counts = np.asarray(counts)
    wrong = np.flatnonzero(counts != 1)
    if wrong.size:
        raise AssertionError(
            f"batches that do not count once: {[(int(i), float(counts[i])) for i in wrong[:20]]}"
        )


def train(kind: str, *, times: int, seconds: float, seed: int, steps: int) -> int:
    """Interrupts a NumPy loop of one worker, and checks what counted.

    Args:
        kind: "by_step"; "by_ticket", asynchronously; "add", with gradients that are handed in
            early and then changed; "rows", with an embedding table.
    """
    # Otherwise gradients are not sent, but lent.
    same_host = "off" if kind == "add" else None
    with (
        LocalCluster(num_ps=2) as ps,
        holdfast.connect(**ps.task(), same_host=same_host) as cluster,
    ):
        variables: dict[str, Any] = {"counts": holdfast.Variable(steps)}
        more: dict[str, Any] = {}
        if kind == "add":
            variables["large"] = holdfast.Variable(LARGE)
        if kind == "by_ticket":
            more["consistency"] = holdfast.Asynchronous(pipeline_depth=2)
        if kind == "rows":
            more["tables"] = {
                "t": holdfast.EmbeddingTable(2, holdfast.Zeros(), max_rows_per_push=8)
            }
        cluster.declare(
            variables, optimizer=holdfast.Sgd(learning_rate=1.0), steps=steps, seed=1, **more
        )
        large = np.zeros(LARGE, FLOAT32)

        def body(batch: int) -> None:
            values = cluster.pull()
            if values["counts"][batch] != 0:
                raise AssertionError(f"batch {batch} counts already")
            gradients = {"counts": one_hot(batch, steps)}
            if kind == "add":
                large[:] = 7
                cluster.add({"large": large})
                large[:] = -1
            if kind == "rows":
                ids = np.array([batch, batch + 1, batch], np.uint64)
                cluster.want_rows({"t": ids + np.uint64(1)})
                rows = cluster.pull_rows({"t": ids})["t"]
                cluster.add_rows("t", ids, np.full_like(rows, -0.5))
            cluster.push(gradients, loss=0.0, examples=1)

        def loop() -> None:
            for batch in cluster.batches():
                body(batch)

        struck = interrupt(loop, times=times, seconds=seconds, seed=seed)
        values = cluster.pull()
        all_count_once(values["counts"])
        if kind == "add" and not (values["large"] == steps).all():
            raise AssertionError(f"large: {np.unique(values['large'])}, not {steps}")
        if kind == "rows":
            rows = cluster.pull_rows({"t": np.arange(1, steps)})["t"]
            if not (rows == 1.5).all():
                raise AssertionError(f"rows: {np.unique(rows)}")
        outcomes = cluster.outcomes()
        if outcomes.accepted != steps:
            raise AssertionError(f"{outcomes}, not {steps} accepted")
    return struck


if __name__ == "__main__":
    of_kind, wanted, with_seed = sys.argv[1], int(sys.argv[2]), int(sys.argv[3])
    reached = train(
        of_kind,
        times=wanted,
        seconds=0.01 if of_kind == "add" else 0.0005,
        seed=with_seed,
        steps=max(300, 5 * wanted),
    )
    print(f"{of_kind}: each batch counted once, interrupted {reached} times, seed {with_seed}")
