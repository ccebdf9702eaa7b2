# SPDX-License-Identifier: Apache-2.0

"""Code shared by the programs that measure rows: batches of ids, flags, reporting.

Ids are drawn as in `holdfast bench rows`: by Zipf's law over the rows of the table, permuted so
that frequent ids are not the small ones. Each program measures one row length and prints lines
like harness.py, in ns per row. The operations "push", "pull" and "pushpull" use a batch's unique
ids, in ascending order; the others use all of its ids.
"""

import argparse

import harness

BATCHES = 16
LEARNING_RATE = 0.001
# As in cli/bench_row_worker.cc; greater than any number of rows.
_PRIME = 2654435761


def parser():
    result = argparse.ArgumentParser()
    result.add_argument("--rows", type=int, default=10_000_000, help="rows of the table")
    result.add_argument("--ids", type=int, default=65536, help="ids of a batch")
    result.add_argument("--zipf", type=float, default=1.05)
    result.add_argument("--row_length", type=int, default=16)
    result.add_argument("--seconds", type=float, default=1.5, help="time for each operation")
    return result


class Batches:
    """BATCHES batches, used in turn."""

    def __init__(self, flags):
        import numpy as np
        weights = np.arange(1, flags.rows + 1, dtype=np.float64) ** -flags.zipf
        cumulative = np.cumsum(weights)
        random = np.random.RandomState(1)
        drawn = random.uniform(0, cumulative[-1], (BATCHES, flags.ids))
        ranks = np.minimum(np.searchsorted(cumulative, drawn), flags.rows - 1) + 1
        self.all = [(batch.astype(np.uint64) * np.uint64(_PRIME) %
                     np.uint64(flags.rows)).astype(np.int64) for batch in ranks]
        unique = [np.unique(batch) for batch in self.all]
        # The same number in each batch, for programs whose shapes are fixed.
        self.num_unique = min(map(len, unique))
        self.unique = [ids[:self.num_unique] for ids in unique]
        self._turn = 0

    def next(self):
        """Returns the index of the next batch."""
        self._turn = (self._turn + 1) % BATCHES
        return self._turn


def report(peer, operation, flags, num_rows, call):
    """Measures calls, each of which handles `num_rows` rows."""
    seconds = harness.median_seconds(call, flags.seconds)
    harness.report(peer, f"{operation}_{flags.row_length}", seconds / num_rows * 1e9, "ns/row")
