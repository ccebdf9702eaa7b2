# SPDX-License-Identifier: Apache-2.0

"""Embedding tables against real ps daemons."""

import glob
import pickle
import shutil
import unittest

import numpy as np
from local_cluster import LocalCluster, await_that

import holdfast

FLOAT32 = np.float32
ONE = np.ones(1, FLOAT32)
LAST = 2**64 - 1


def table(row_length=2, initializer=None, *, max_rows_per_push=3, **more):
    if initializer is None:
        initializer = holdfast.Constant(value=5.0)
    return holdfast.EmbeddingTable(
        row_length, initializer, max_rows_per_push=max_rows_per_push, **more
    )


def declare(cluster, *, steps=3, tables=None, **more):
    cluster.declare(
        {"w": holdfast.Variable(1)},
        optimizer=holdfast.Sgd(learning_rate=1.0),
        steps=steps,
        tables={"t": table()} if tables is None else tables,
        **more,
    )


def push(cluster):
    cluster.push([ONE], loss=0.0, examples=1)


# One of two workers: each pushes row 1 and a row of its own.
SCRIPT = """
    import json
    import numpy as np
    import holdfast
    with holdfast.connect() as cluster:
        cluster.declare(
            {"w": holdfast.Variable(1)},
            optimizer=holdfast.Sgd(learning_rate=1.0),
            steps=10,
            tables={"t": holdfast.EmbeddingTable(
                2, holdfast.Constant(value=5.0), max_rows_per_push=2)},
        )
        ids = np.array([10 + cluster.replica, 1])
        for batch in cluster.batches():
            rows = cluster.pull_rows({"t": ids})["t"]
            assert rows[1, 0] == 5 - 2 * cluster.step, (rows, cluster.step)
            cluster.add_rows("t", ids, np.full((2, 2), 2, np.float32))
            cluster.want_rows({"t": ids})
            cluster.push([np.ones(1, np.float32)], loss=0.0, examples=1)
        rows = cluster.pull_rows({"t": [1, 10, 11, 12]})["t"]
    print(json.dumps(rows[:, 0].tolist()))
"""


# Pushes new rows until its table is full. Worker 0 takes no notice of errors, and does not end.
FULL_SCRIPT = """
    import time
    import numpy as np
    import holdfast
    ROWS = 4096
    with holdfast.connect() as cluster:
        cluster.declare(
            {{"w": holdfast.Variable(1)}},
            optimizer=holdfast.Sgd(learning_rate=1.0),
            steps=10**6,
            tables={{"t": holdfast.EmbeddingTable(
                64, holdfast.Constant(value=0.0), max_rows_per_push=ROWS)}},
        )
        try:
            for batch in cluster.batches():
                if cluster.replica == 0:
                    ids = np.arange(batch * ROWS, (batch + 1) * ROWS, dtype=np.uint64)
                    cluster.add_rows("t", ids, np.ones((ROWS, 64), np.float32))
                cluster.push([np.ones(1, np.float32)], loss=0.0, examples=1)
        except holdfast.Error as error:
            print("told", error, flush=True)
            if {swallows} and cluster.replica == 0:
                time.sleep(3600)
            raise
"""


class FullTest(unittest.TestCase):
    def test_a_table_that_is_full_ends_the_job_at_once(self):
        for swallows in (False, True):
            with (
                self.subTest(swallows=swallows),
                LocalCluster(2, 2, flags=("--memory_limit=32MiB",)) as ps,
            ):
                refused = ps.run(FULL_SCRIPT.format(swallows=swallows), 0)
                other = ps.run(FULL_SCRIPT.format(swallows=swallows), 1)
                self.assertEqual(other.wait(), 1, other.output)
                self.assertIn("holdfast.JobFailed: ", other.output)
                for told in (
                    "/job:worker/task:0",
                    "/job:ps/task:",
                    'table "t" is full',
                    "--memory_limit",
                    "max_rows",
                ):
                    self.assertIn(told, other.output.splitlines()[-1])
                ps.await_end(1)
                refused.await_output("told ")
                self.assertIn('table "t" is full', refused.output)
                if not swallows:
                    self.assertIn(refused.wait(), (1, 2))


class RowsTest(unittest.TestCase):
    def setUp(self):
        self.ps = LocalCluster(2)
        self.addCleanup(self.ps.__exit__)

    def connect(self):
        cluster = holdfast.connect(**self.ps.task())
        self.addCleanup(cluster.close)
        return cluster

    def start(self, **more):
        """A cluster in its first turn."""
        cluster = self.connect()
        declare(cluster, **more)
        batches = cluster.batches()
        next(batches)
        return cluster, batches

    def test_a_whole_loop(self):
        tables = {"t": table(), "u": table(3, holdfast.Uniform(low=1.0, high=2.0))}
        with holdfast.connect(**self.ps.task()) as cluster:
            declare(cluster, steps=2, tables=tables)
            for batch in cluster.batches():
                ids = np.array([[9, 4], [9, LAST]], np.uint64)
                rows = cluster.pull_rows({"u": [3, 4], "t": ids})
                self.assertEqual(list(rows), ["u", "t"])
                self.assertEqual(rows["t"].shape, (2, 2, 2))
                self.assertEqual(rows["t"].dtype, FLOAT32)
                self.assertTrue((rows["u"] >= 1).all() and (rows["u"] < 2).all())
                self.assertTrue((rows["u"][0] != rows["u"][1]).all())
                expected = [[5, 5], [5, 5]] if batch == 0 else [[3, 4], [3, 5]]
                self.assertEqual(rows["t"][..., 0].tolist(), expected)
                self.assertEqual(rows["t"][..., 1].tolist(), [[5, 5], [5, 5]])
                if batch == 0:
                    gradients = np.zeros((2, 2, 2), FLOAT32)
                    gradients[:, :, 0] = [[1, 1], [1, 0]]
                    cluster.add_rows("t", ids, gradients)
                    gradients[:] = 100
                push(cluster)
            self.assertEqual(cluster.pull_rows({"t": 9})["t"].tolist(), [3, 5])
            self.assertEqual(cluster.pull()["w"], -2)
        self.ps.await_end()

    def test_before_the_first_batch_the_newest_are_read(self):
        cluster = self.connect()
        declare(cluster)
        rows = cluster.pull_rows({"t": np.arange(3, dtype=np.int32)})
        self.assertEqual(rows["t"].tolist(), [[5, 5]] * 3)
        self.assertEqual(cluster.pull_rows({"t": []})["t"].shape, (0, 2))

    def test_two_workers(self):
        with LocalCluster(2, 2) as ps:
            scripts = [ps.run(SCRIPT, i) for i in range(2)]
            results = [script.result() for script in scripts]
            ps.await_end()
        # For a row pushed by only one of them, half of the gradient counts.
        self.assertEqual(results, [[-15, -5, -5, 5]] * 2)

    def test_asynchronous(self):
        cluster, batches = self.start(steps=6, consistency=holdfast.Asynchronous(pipeline_depth=2))
        for _ in range(6):
            cluster.pull_rows({"t": [1]})
            cluster.add_rows("t", [1, 1], np.ones((2, 2), FLOAT32))
            push(cluster)
            next(batches, None)
        self.assertEqual(cluster.pull_rows({"t": [1]})["t"].tolist(), [[-7, -7]])

    def test_wrong_arguments(self):
        cluster, batches = self.start()
        ones = np.ones((2, 2), FLOAT32)
        for call, error, message in (
            (lambda: cluster.pull_rows({"x": [1]}), ValueError, 'no table "x"; there are: t'),
            (lambda: cluster.want_rows({"x": [1]}), ValueError, 'no table "x"'),
            (lambda: cluster.add_rows("x", [1, 2], ones), ValueError, 'no table "x"'),
            (lambda: cluster.pull_rows({"t": [0.5]}), TypeError, '"t" have dtype float64'),
            (lambda: cluster.pull_rows({"t": [1, -7]}), ValueError, "-7 is among them"),
            (lambda: cluster.add_rows("t", [1], ones), ValueError, r"shape \(2, 2\); .* \(1, 2\)"),
            (lambda: cluster.add_rows("t", [1, 2], np.ones((2, 2))), TypeError, "dtype float64"),
            (
                lambda: cluster.add_rows("t", [1, 2, 3, 4], np.ones((4, 2), FLOAT32)),
                holdfast.Refused,
                "4 rows are pushed, but max_rows_per_push is 3",
            ),
            (
                lambda: cluster.add_rows("t", [1, 6], np.array([[1, 1], [1, np.nan]], FLOAT32)),
                holdfast.Refused,
                'table "t": element 1 of row 6 is nan',
            ),
        ):
            with self.assertRaisesRegex(error, message):
                call()
        # Correct gradients are accepted afterwards.
        cluster.add_rows("t", [1, 6], ones)
        with self.assertRaisesRegex(holdfast.Refused, "were handed in before"):
            cluster.add_rows("t", [1, 6], ones)
        push(cluster)
        next(batches)
        self.assertEqual(cluster.pull_rows({"t": [6]})["t"].tolist(), [[4, 4]])
        self.assertEqual(cluster.outcomes().not_finite, 0)

    def test_a_roll_back(self):
        with LocalCluster(2) as ps, holdfast.connect(**ps.task()) as cluster:
            declare(cluster, steps=8)
            seen, rollbacks = [], []
            killed = False
            for batch in cluster.batches(on_rollback=rollbacks.append):
                if batch == 3 and not killed:
                    self.assertEqual(cluster.checkpoint(), 3)
                if batch == 5 and not killed:
                    killed = True
                    ps.kill_ps(1)
                # Rows on both ps.
                rows = cluster.pull_rows({"t": [1, 2, 3]})["t"]
                seen.append((batch, rows[:, 0].tolist()))
                cluster.add_rows("t", [1, 2, 3], np.ones((3, 2), FLOAT32))
                push(cluster)
            self.assertEqual(rollbacks, [3])
            rows = cluster.pull_rows({"t": [1, 2, 3]})["t"]
        expected = [(batch, [5 - batch] * 3) for batch in [0, 1, 2, 3, 4, 5, 3, 4, 5, 6, 7]]
        # The rows of the batch in progress when the ps was lost.
        expected[5] = (5, [0] * 3)
        self.assertEqual(seen, expected)
        self.assertEqual(rows.tolist(), [[-3, -3]] * 3)


IDS = np.array([1, 2, LAST], np.uint64)
ONES = np.ones((3, 2), FLOAT32)


def declare_alone(cluster, **more):
    """A job with a table and no variables."""
    cluster.declare({}, tables={"t": table()}, optimizer=holdfast.Sgd(learning_rate=1.0), **more)


def first_values(cluster):
    """Of each row of IDS."""
    return cluster.pull_rows({"t": IDS})["t"][:, 0].tolist()


def push_alone(cluster):
    cluster.add_rows("t", IDS, ONES)
    cluster.push({}, loss=0.0, examples=1)


class TablesAloneTest(unittest.TestCase):
    def test_a_whole_loop(self):
        for num_ps in (1, 2):
            for consistency in (
                holdfast.Synchronous(),
                holdfast.Asynchronous(),
                holdfast.Asynchronous(pipeline_depth=2),
            ):
                with self.subTest(num_ps=num_ps, consistency=consistency):
                    self.run_job(num_ps, consistency)

    def run_job(self, num_ps, consistency):
        seen = []
        with LocalCluster(num_ps) as ps:
            with holdfast.connect(**ps.task()) as cluster:
                declare_alone(cluster, steps=4, consistency=consistency)
                self.assertEqual(cluster.pull(), {})
                for batch in cluster.batches():
                    self.assertEqual(cluster.pull(), {})
                    seen.append(first_values(cluster))
                    cluster.want_rows({"t": IDS})
                    if batch == 1:  # uses no rows
                        cluster.push([], loss=0.0, examples=1)
                    else:
                        push_alone(cluster)
                self.assertEqual(first_values(cluster), [2] * 3)
                self.assertEqual(cluster.pull(), {})
                self.assertEqual(cluster.outcomes().accepted, 4)
            ps.await_end()
        # With a pipeline, the rows of the first batches depend on the timing.
        if getattr(consistency, "pipeline_depth", None) is None:
            self.assertEqual(seen, [[5] * 3, [4] * 3, [4] * 3, [3] * 3])

    def test_two_workers(self):
        script = """
            import json
            import numpy as np
            import holdfast
            with holdfast.connect() as cluster:
                cluster.declare(
                    {},
                    optimizer=holdfast.Sgd(learning_rate=1.0),
                    steps=5,
                    tables={"t": holdfast.EmbeddingTable(
                        2, holdfast.Zeros(), max_rows_per_push=2)},
                )
                ids = np.array([10 + cluster.replica, 1])
                for batch in cluster.batches():
                    rows = cluster.pull_rows({"t": ids})["t"]
                    assert rows[1, 0] == -2 * cluster.step, (rows, cluster.step)
                    cluster.add_rows("t", ids, np.full((2, 2), 2, np.float32))
                    cluster.push({}, loss=0.0, examples=1)
                rows = cluster.pull_rows({"t": [1, 10, 11, 12]})["t"]
            print(json.dumps(rows[:, 0].tolist()))
        """
        with LocalCluster(2, 2) as ps:
            scripts = [ps.run(script, i) for i in range(2)]
            results = [script.result() for script in scripts]
            ps.await_end()
        self.assertEqual(results, [[-10, -5, -5, 0]] * 2)

    def test_a_client_reads_rows_and_status(self):
        with LocalCluster(2) as ps, holdfast.connect(**ps.task()) as cluster:
            declare_alone(cluster, steps=9)
            next(cluster.batches())
            push_alone(cluster)
            with holdfast.connect(ps.spec, job_name="client") as client:
                self.assertEqual(client.pull(), {})
                self.assertEqual(first_values(client), [4] * 3)

            def rows_told():
                tasks = ps.status().everything["tasks"]
                tables = [t for task in tasks for t in task.get("ps", {}).get("tables", [])]
                return sum(int(t.get("rows", 0)) for t in tables)

            await_that(lambda: rows_told() == 3, "the rows in the status")
            self.assertEqual(ps.status().global_step, 1)

    def test_it_resumes_from_its_checkpoint(self):
        for consistency in (holdfast.Synchronous(), holdfast.Asynchronous()):
            with self.subTest(consistency=consistency), LocalCluster(2) as ps:
                with holdfast.connect(**ps.task()) as cluster:
                    declare_alone(cluster, steps=6, consistency=consistency)
                    for batch in cluster.batches():
                        if batch == 3:
                            break
                        push_alone(cluster)
                    self.assertEqual(cluster.checkpoint(), 3)
                    self.assertEqual(cluster.status().durable_step, 3)
                for daemon in ps.ps:
                    daemon.kill()
                    daemon.wait()
                checkpoint = holdfast.load_checkpoint(ps.checkpoints)
                self.assertEqual((checkpoint.step, checkpoint.values), (3, {}))
                ids, rows = checkpoint.read_rows("t")
                self.assertEqual((ids.tolist(), rows.tolist()), (IDS.tolist(), [[2, 2]] * 3))
                ps.start_again()
                with holdfast.connect(**ps.task()) as cluster:
                    declare_alone(cluster, steps=6, consistency=consistency)
                    self.assertEqual(first_values(cluster), [2] * 3)
                    for _ in cluster.batches():
                        push_alone(cluster)
                    self.assertEqual(first_values(cluster), [-1] * 3)
                    self.assertEqual(cluster.outcomes().accepted, 3)
                ps.await_end()

    def test_a_roll_back(self):
        with LocalCluster(2) as ps, holdfast.connect(**ps.task()) as cluster:
            declare_alone(cluster, steps=6)
            rollbacks = []
            for batch in cluster.batches(on_rollback=rollbacks.append):
                if not rollbacks and batch == 2:
                    self.assertEqual(cluster.checkpoint(), 2)
                if not rollbacks and batch == 4:
                    ps.kill_ps(0)
                push_alone(cluster)
            self.assertEqual(rollbacks, [2])
            self.assertEqual(first_values(cluster), [-1] * 3)

    def test_a_job_with_neither_variables_nor_tables_is_refused(self):
        with LocalCluster() as ps, holdfast.connect(**ps.task()) as cluster:
            with self.assertRaisesRegex(
                holdfast.Refused, "variables: must have at least one, unless there are tables"
            ):
                cluster.declare({}, optimizer=holdfast.Sgd(learning_rate=1.0), steps=1)
            declare_alone(cluster, steps=1)


class CheckpointTest(unittest.TestCase):
    def setUp(self):
        self.ps = LocalCluster(2)
        self.addCleanup(self.ps.__exit__)

    def test_rows_are_read_without_a_cluster(self):
        with holdfast.connect(**self.ps.task()) as cluster:
            declare(cluster, tables={"t": table(), "u": table(3)})
            for batch in cluster.batches():
                # The second one, and the last, have only the rows that have changed.
                if batch > 0:
                    cluster.checkpoint()
                cluster.add_rows("t", np.array([LAST, batch], np.uint64), np.ones((2, 2), FLOAT32))
                push(cluster)
        self.ps.await_end()
        checkpoint = holdfast.load_checkpoint(self.ps.checkpoints)
        self.assertEqual((checkpoint.step, checkpoint.values["w"].tolist()), (3, [-3]))
        self.assertEqual(
            checkpoint.tables, {"t": holdfast.StoredTable(4, 2), "u": holdfast.StoredTable(0, 3)}
        )
        for _ in range(2):
            ids, rows = checkpoint.read_rows("t")
            self.assertEqual((ids.dtype, ids.tolist()), (np.uint64, [0, 1, 2, LAST]))
            self.assertEqual((rows.dtype, rows.tolist()), (FLOAT32, [[4, 4]] * 3 + [[2, 2]]))
            rows[:] = 7  # the caller's to change
        ids, rows = checkpoint.read_rows("u")
        self.assertEqual((ids.shape, rows.shape), ((0,), (0, 3)))

    def test_what_is_wrong_is_told(self):
        with holdfast.connect(**self.ps.task()) as cluster:
            declare_alone(cluster, steps=1)
            for _ in cluster.batches():
                push_alone(cluster)
        self.ps.await_end()
        checkpoint = holdfast.load_checkpoint(self.ps.checkpoints)
        with self.assertRaisesRegex(ValueError, 'no table "x"; there are: t'):
            checkpoint.read_rows("x")
        with self.assertRaisesRegex(ValueError, 'no table "t"; there are: none'):
            holdfast.Checkpoint(1, {}).read_rows("t")
        copied = pickle.loads(pickle.dumps(checkpoint))
        self.assertEqual(copied.tables, checkpoint.tables)
        with self.assertRaisesRegex(ValueError, "not by a copy of it"):
            copied.read_rows("t")
        # The files begin with 8 bytes of magic, and then have rows, if any.
        [folder] = glob.glob(self.ps.checkpoints + "/g*")
        for path in glob.glob(folder + "/ps-*"):
            with open(path, "r+b") as file:
                file.seek(24)
                byte = file.read(1)
                file.seek(24)
                file.write(bytes([byte[0] ^ 1]))
        with self.assertRaisesRegex(holdfast.Error, "ps-000"):
            checkpoint.read_rows("t")
        shutil.rmtree(folder)
        with self.assertRaisesRegex(FileNotFoundError, "g0001-step00000001"):
            checkpoint.read_rows("t")


class DeclarationTest(unittest.TestCase):
    def test_every_option_is_declared(self):
        with LocalCluster() as ps, holdfast.connect(**ps.task()) as cluster:
            adagrad = holdfast.Adagrad(learning_rate=0.5)
            tables = {
                "plain": table(),
                "rich": table(
                    optimizer=adagrad,
                    row_wise=True,
                    min_count=2,
                    expire_after_steps=100,
                    max_rows=16384,
                ),
            }
            declare(cluster, tables=tables)
            # Created by the second push of the row.
            for batch in cluster.batches():
                expected = (5.0, 5.0, 4.5)[batch]
                row = cluster.pull_rows({"rich": [1]})["rich"]
                self.assertAlmostEqual(row[0, 0], expected, delta=0.03)
                cluster.add_rows("rich", [1], np.ones((1, 2), FLOAT32))
                push(cluster)

    def test_what_is_wrong_is_told(self):
        for arguments, message in (
            ({"row_length": 2.5}, "row_length: expected int, got 2.5"),
            ({"max_rows_per_push": None}, "max_rows_per_push: expected int, got None"),
            ({"min_count": True}, "min_count: expected int or None, got True"),
            ({"initializer": np.ones(2)}, "initializer: expected one of holdfast's"),
            ({"optimizer": 1}, "optimizer: expected Optimizer or None, got 1"),
        ):
            with self.assertRaisesRegex(TypeError, message):
                table(**{"row_length": 2, "initializer": holdfast.Zeros(), **arguments})
        with LocalCluster() as ps, holdfast.connect(**ps.task()) as cluster:
            with self.assertRaisesRegex(TypeError, 'table "t": expected EmbeddingTable'):
                declare(cluster, tables={"t": holdfast.Variable(1)})
            with self.assertRaisesRegex(holdfast.Refused, "row_length"):
                declare(cluster, tables={"t": table(0)})


if __name__ == "__main__":
    unittest.main()
