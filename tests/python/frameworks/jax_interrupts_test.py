# SPDX-License-Identifier: Apache-2.0

"""A JAX loop that is interrupted at random moments, and entered again each time.

By hand: jax_interrupts_test.py [interrupts] [seed]
"""

import sys
import unittest

import holdfast.jax
import jax
import jax.numpy as jnp
import numpy as np
from interrupts import all_count_once, interrupt
from local_cluster import LocalCluster

import holdfast


def train(*, times: int, seed: int, steps: int, tables: bool) -> int:
    with LocalCluster(num_ps=2) as ps, holdfast.connect(**ps.task()) as cluster:
        declared = {"t": holdfast.EmbeddingTable(2, holdfast.Zeros(), max_rows_per_push=8)}
        trainer = holdfast.jax.Trainer(
            {"counts": jnp.zeros(steps), "empty": jnp.zeros((0, 3))},
            optimizer=holdfast.Sgd(learning_rate=1.0),
            steps=steps,
            tables=declared if tables else None,
            cluster=cluster,
        )
        gradient_of = jax.jit(
            lambda params, batch: {
                "counts": jnp.zeros(steps).at[batch].set(-1.0) + 0 * params["counts"],
                "empty": params["empty"],
            }
        )

        def loop() -> None:
            for batch in trainer.batches():
                ids = {"t": np.array([batch, batch + 1])} if tables else None
                if tables:
                    trainer.rows(ids)
                trainer.push(
                    0.0,
                    gradient_of(trainer.params, batch),
                    examples=1,
                    ids=ids,
                    rows=rows_of_batch if tables else None,
                )

        # JAX does not survive interrupts of its own first calls.
        gradient_of(trainer.params, 0)
        rows_of_batch = {"t": jnp.full((2, 2), -0.5)}
        struck = interrupt(loop, times=times, seconds=0.002, seed=seed)
        all_count_once(trainer.params["counts"])
        assert trainer.params["empty"].shape == (0, 3)
        if tables:
            assert (np.asarray(trainer.rows({"t": np.arange(1, steps)})["t"]) == 1).all()
    return struck


class InterruptsTest(unittest.TestCase):
    def test_each_batch_counts_once(self):
        self.assertEqual(train(times=60, seed=1, steps=400, tables=False), 60)

    def test_rows_count_once(self):
        self.assertEqual(train(times=60, seed=2, steps=400, tables=True), 60)


if __name__ == "__main__":
    if sys.argv[1:]:
        wanted, with_seed = int(sys.argv[1]), int(sys.argv[2])
        for with_tables in (False, True):
            reached = train(times=wanted, seed=with_seed, steps=6 * wanted, tables=with_tables)
            print(f"JAX, tables {with_tables}: interrupted {reached} times, seed {with_seed}")
    else:
        unittest.main()
