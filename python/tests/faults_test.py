# SPDX-License-Identifier: Apache-2.0

"""What dies, stands still or is interrupted, and what a script sees of it."""

import json
import multiprocessing
import os
import re
import signal
import subprocess
import sys
import time
import unittest

import numpy as np
from local_cluster import LocalCluster, await_that, interrupted_after

import holdfast

FLOAT32 = np.float32

HOLDFAST = os.environ.get("HOLDFAST", "cli/holdfast")

# Values that depend on the order and on each gradient: with momentum.
TRAIN = """
    import json, time
    import numpy as np
    import holdfast
    with holdfast.connect() as cluster:
        cluster.declare(
            {"w": holdfast.Variable((4, 3), holdfast.Normal(stddev=1.0)),
             "b": holdfast.Variable(5)},
            optimizer=holdfast.Momentum(learning_rate=0.01, momentum=0.9),
            steps=60,
            checkpoints=holdfast.Checkpoints(every_steps=5),
        )
        rollbacks = []
        for batch in cluster.batches(on_rollback=rollbacks.append):
            random = np.random.default_rng(batch)
            gradients = [random.standard_normal(value.shape, np.float32) + value
                         for value in cluster.pull().values()]
            cluster.push(gradients, loss=0.0, examples=1)
            print("batch", batch, flush=True)
            time.sleep(0.02)
        digest = holdfast.digest(cluster.pull())
    print(json.dumps({"digest": digest, "rollbacks": rollbacks}))
"""

# For an asynchronous job: each batch counts in an element of its own.
COUNT = """
    import json, time
    import numpy as np
    import holdfast
    with holdfast.connect() as cluster:
        cluster.declare(
            {"counts": holdfast.Variable(90)},
            optimizer=holdfast.Sgd(learning_rate=1.0),
            steps=90,
            consistency=holdfast.Asynchronous(),
            checkpoints=holdfast.Checkpoints(every_steps=5),
        )
        for batch in cluster.batches():
            print("batch", batch, flush=True)
            time.sleep(0.02)
            gradient = np.zeros(90, np.float32)
            gradient[batch] = -1
            cluster.push([gradient], loss=0.0, examples=1)
        counts = cluster.pull()["counts"]
    print(json.dumps(counts.tolist()))
"""

# Waits in its first batch until it is told to go on, and then does `then`.
WAITING = """
    import os, sys, time
    import numpy as np
    import holdfast
    def wait_for(file):
        while not os.path.exists(file):
            time.sleep(0.01)
    one = np.ones(1, np.float32)
    with holdfast.connect() as cluster:
        cluster.declare({{"w": holdfast.Variable(1)}}, steps={steps},
                        optimizer=holdfast.Sgd(learning_rate=1.0))
        for batch in cluster.batches():
            print("batch", batch, flush=True)
            {then}
            cluster.push([one], loss=0.0, examples=1)
"""


def until(file):
    """A line of Python that waits for a file."""
    return f"wait_for({file!r})"


def touch(file):
    with open(file, "w"):
        pass


class RollbackTest(unittest.TestCase):
    def train(self, *kills):
        """Two workers on two ps, which are killed at these batches; results of both."""
        with LocalCluster(2, 2) as ps:
            scripts = [ps.run(TRAIN, i) for i in range(2)]
            for batch, index in kills:
                scripts[0].await_output(f"batch {batch}\n")
                ps.kill_ps(index)
            results = [script.result() for script in scripts]
            ps.await_end()
        self.assertEqual(results[0]["digest"], results[1]["digest"])
        return results

    def test_the_same_bits_whatever_dies(self):
        expected = self.train()[0]
        self.assertEqual(expected["rollbacks"], [])
        for index in (1, 0):
            with self.subTest(ps=index):
                got = self.train((40, index))[0]
                self.assertEqual(got["digest"], expected["digest"])
                self.assertEqual(len(got["rollbacks"]), 1)

    def test_values_and_batches_go_on_from_the_restored_step(self):
        with LocalCluster(1) as ps, holdfast.connect(**ps.task()) as cluster:
            cluster.declare(
                {"w": holdfast.Variable(1)}, optimizer=holdfast.Sgd(learning_rate=1.0), steps=8
            )
            seen, rollbacks = [], []
            killed = False
            for batch in cluster.batches(on_rollback=rollbacks.append):
                seen.append((batch, -cluster.pull()["w"].item()))
                if batch == 3 and not killed:
                    self.assertEqual(cluster.checkpoint(), 3)
                if batch == 5 and not killed:
                    killed = True
                    ps.kill_ps(0)
                cluster.push([np.ones(1, FLOAT32)], loss=0.0, examples=1)
            self.assertEqual(rollbacks, [3])
            expected = [0, 1, 2, 3, 4, 5, 3, 4, 5, 6, 7]
            self.assertEqual(seen, [(batch, float(batch)) for batch in expected])
            self.assertEqual(cluster.pull()["w"], -8)
            self.assertEqual(cluster.outcomes().roll_backs, 1)

    def test_a_roll_back_is_told_until_it_was_heard(self):
        with LocalCluster(1) as ps, holdfast.connect(**ps.task()) as cluster:
            cluster.declare(
                {"w": holdfast.Variable(1)}, optimizer=holdfast.Sgd(learning_rate=1.0), steps=4
            )
            told = []

            def on_rollback(step):
                told.append(step)
                if len(told) < 3:
                    raise KeyboardInterrupt

            while True:
                try:
                    for batch in cluster.batches(on_rollback=on_rollback):
                        if batch == 1 and not told:
                            cluster.checkpoint()
                        if batch == 2 and not told:
                            ps.kill_ps(0)
                        cluster.push([np.ones(1, FLOAT32)], loss=0.0, examples=1)
                    break
                except KeyboardInterrupt:
                    pass
            self.assertEqual(told, [1, 1, 1])
            self.assertEqual(cluster.pull()["w"], -4)

    def test_parts_that_have_left_are_rolled_back(self):
        # 5 MB each: more than one message.
        ahead, rest = np.ones(1_250_000, FLOAT32), np.ones(1_250_000, FLOAT32)
        with LocalCluster(1) as ps, holdfast.connect(**ps.task()) as cluster:
            cluster.declare(
                {"rest": holdfast.Variable(rest.shape), "ahead": holdfast.Variable(ahead.shape)},
                optimizer=holdfast.Sgd(learning_rate=1.0),
                steps=6,
            )
            killed = False
            for batch in cluster.batches():
                if batch == 2 and not killed:
                    cluster.checkpoint()
                cluster.add({"ahead": ahead})
                if batch == 4 and not killed:
                    killed = True
                    ps.kill_ps(0)
                cluster.push({"rest": rest}, loss=0.0, examples=1)
            values = cluster.pull()
            self.assertEqual(cluster.outcomes().roll_backs, 1)
        for name in ("ahead", "rest"):
            self.assertTrue((values[name] == -6).all(), name)

    def test_strict(self):
        with LocalCluster(1) as ps, holdfast.connect(**ps.task()) as cluster:
            cluster.declare(
                {"w": holdfast.Variable(1)}, optimizer=holdfast.Sgd(learning_rate=1.0), steps=4
            )
            with self.assertRaises(holdfast.RolledBack) as caught:
                for batch in cluster.batches(strict=True):
                    if batch == 1:
                        cluster.checkpoint()
                    if batch == 2:
                        ps.kill_ps(0)
                    cluster.push([np.ones(1, FLOAT32)], loss=0.0, examples=1)
            self.assertEqual(caught.exception.step, 1)
            rest = []
            for batch in cluster.batches(strict=True):
                rest.append(batch)
                cluster.push([np.ones(1, FLOAT32)], loss=0.0, examples=1)
            self.assertEqual(rest, [1, 2, 3])
            self.assertEqual(cluster.pull()["w"], -4)

    def test_before_the_first_checkpoint_the_chief_gives_its_values_again(self):
        first = np.full(2, 7, FLOAT32)
        with LocalCluster(1) as ps, holdfast.connect(**ps.task()) as cluster:
            cluster.declare({"w": first}, optimizer=holdfast.Sgd(learning_rate=1.0), steps=3)
            first[:] = 0  # the caller's own
            killed = False
            for batch in cluster.batches():
                if batch == 1 and not killed:
                    killed = True
                    ps.kill_ps(0)
                cluster.push([np.ones(2, FLOAT32)], loss=0.0, examples=1)
            self.assertEqual(cluster.pull()["w"].tolist(), [4, 4])

    def test_a_worker_that_is_killed_and_started_again(self):
        with LocalCluster(1, 2, flags=("--lease=1s",)) as ps:
            scripts = [ps.run(TRAIN, i) for i in range(2)]
            scripts[1].await_output("batch 21\n")
            scripts[1].stop()
            again = ps.run(TRAIN, 1)
            results = [scripts[0].result(), again.result()]
            ps.await_end()
        self.assertEqual(results[0]["digest"], results[1]["digest"])

    def test_a_worker_that_stood_still_for_longer_than_its_lease(self):
        with LocalCluster(1, 2, flags=("--lease=1s",)) as ps:
            scripts = [ps.run(TRAIN, i) for i in range(2)]
            scripts[1].await_output("batch 21\n")
            scripts[1].process.send_signal(signal.SIGSTOP)
            ps.await_lost_worker()
            scripts[1].process.send_signal(signal.SIGCONT)
            results = [script.result() for script in scripts]
            ps.await_end()
        self.assertEqual(results[0]["digest"], results[1]["digest"])
        self.assertEqual(results[0]["digest"], self.train()[0]["digest"])

    def test_asynchronous_batches_count_once(self):
        with LocalCluster(2, 3, flags=("--lease=1s",)) as ps:
            scripts = [ps.run(COUNT, i) for i in range(3)]
            ps.await_step(10)
            scripts[1].stop()
            scripts[1] = ps.run(COUNT, 1)
            for step, index in ((30, 1), (50, 0)):
                ps.await_step(step)
                ps.kill_ps(index)
            for script in scripts:
                self.assertEqual(script.result(), [1.0] * 90)
            ps.await_end()


class LeaseTest(unittest.TestCase):
    def test_a_held_gil_loses_nothing(self):
        # No other Python thread runs for three leases, because a PyDLL keeps the GIL.
        hold = "import ctypes; batch == 1 and ctypes.PyDLL(None).usleep(3_000_000)"
        with LocalCluster(1, flags=("--lease=1s",)) as ps:
            script = ps.run(WAITING.format(steps=3, then=hold))
            self.assertEqual(script.wait(), 0, script.output)
            self.assertEqual(script.output.count("batch"), 3)
            ps.await_end()

    def test_a_worker_whose_place_was_taken_is_fenced(self):
        with LocalCluster(1, flags=("--lease=1s",)) as ps:
            files = [os.path.join(ps.folder, name) for name in ("first", "second")]
            first, second = (WAITING.format(steps=3, then=until(file)) for file in files)
            first = ps.run(first)
            first.await_output("batch 0")
            first.process.send_signal(signal.SIGSTOP)
            ps.await_lost_worker()
            second = ps.run(second)
            second.await_output("batch 0")
            touch(files[0])
            first.process.send_signal(signal.SIGCONT)
            self.assertEqual(first.wait(), 138, first.output)
            self.assertIn("holdfast.Fenced: ", first.output)
            touch(files[1])
            self.assertEqual(second.wait(), 0, second.output)
            ps.await_end()


class InputTest(unittest.TestCase):
    def test_a_script_that_waits_for_its_data_is_named(self):
        with LocalCluster(flags=("--lease=1s",)) as ps, holdfast.connect(**ps.task()) as cluster:
            cluster.declare(
                {"w": holdfast.Variable(1)}, optimizer=holdfast.Sgd(learning_rate=1.0), steps=1
            )

            def named():
                command = [HOLDFAST, "status", "--cluster_spec=" + json.dumps(ps.spec)]
                run = subprocess.run(command, capture_output=True, text=True, check=True)
                return re.search("worker:0 (waits|has waited) for its input", run.stdout)

            def worker():
                tasks = cluster.status().everything["tasks"]
                [task] = [task for task in tasks if task["task"]["job"] == "worker"]
                return task["worker"]

            def longer():
                return worker().get("waiting_seconds", 0) > seconds

            with cluster.waiting_for_input():
                pass  # before there is a loop
            for _ in cluster.batches():
                with cluster.waiting_for_input():
                    await_that(named, "the worker to be named")
                    with cluster.waiting_for_input():
                        pass  # one wait with that around it
                    seconds = worker()["waiting_seconds"]
                    await_that(longer, "a later report")
                await_that(lambda: not worker().get("waiting_for"), "the end of the wait")
                self.assertGreater(worker()["phases"]["input"], seconds)
                cluster.push([np.ones(1, FLOAT32)], loss=0.0, examples=1)


class ExitTest(unittest.TestCase):
    def test_an_exception_of_the_script_ends_the_job(self):
        with LocalCluster(1, 2) as ps:
            file = os.path.join(ps.folder, "go")
            then = until(file) + "; raise ValueError('no such label')"
            bad = ps.run(WAITING.format(steps=3, then=then), 0)
            other = ps.run(WAITING.format(steps=3, then=""), 1)
            other.await_output("batch 1")
            touch(file)
            self.assertEqual(bad.wait(), 1)
            self.assertEqual(other.wait(), 1)
            self.assertIn("ValueError: no such label", bad.output.splitlines()[-1])
            self.assertIn("holdfast.JobFailed: ", other.output.splitlines()[-1])
            self.assertIn("/job:worker/task:0: ValueError: no such label", other.output)
            ps.await_end(1)

    def test_the_others_are_told_whatever_the_text_is(self):
        raises = (
            # The name of a file that is not UTF-8, and what a terminal would obey.
            (
                r"OSError('caf\udce9.csv: \x1b]0;title\x07 is damaged\0')",
                r"caf\udce9.csv: ?]0;title?",
            ),
            ("type('Odd', (Exception,), {'__str__': lambda self: 1 / 0})()", "ZeroDivisionError"),
        )
        for error, told in raises:
            with self.subTest(error), LocalCluster(1, 2) as ps:
                file = os.path.join(ps.folder, "go")
                bad = ps.run(WAITING.format(steps=3, then=until(file) + "; raise " + error), 0)
                other = ps.run(WAITING.format(steps=3, then=""), 1)
                other.await_output("batch 1")
                touch(file)
                self.assertEqual(bad.wait(), 1)
                self.assertEqual(other.wait(), 1)
                self.assertIn(told, other.output.splitlines()[-1])
                ps.await_end(1)
                with open(ps.folder + "/ps-0-1.log", encoding="utf-8") as log:
                    self.assertNotIn("\x1b", log.read())

    def test_wrong_arguments_end_the_job(self):
        with LocalCluster(1, 2) as ps:
            file = os.path.join(ps.folder, "go")
            wrong = "cluster.push([np.ones(1, np.float32)] * 2, loss=0.0, examples=1)"
            bad = ps.run(WAITING.format(steps=3, then=until(file) + "; " + wrong), 0)
            other = ps.run(WAITING.format(steps=3, then=""), 1)
            other.await_output("batch 1")
            touch(file)
            self.assertNotEqual(bad.wait(), 0)
            self.assertEqual(other.wait(), 1)
            self.assertIn("/job:worker/task:0: ", other.output.splitlines()[-1])

    def test_without_a_with_statement(self):
        text = """
            import holdfast, numpy as np
            cluster = holdfast.connect()
            cluster.declare({"w": holdfast.Variable(1)}, steps=3,
                            optimizer=holdfast.Sgd(learning_rate=1.0))
            for batch in cluster.batches():
                cluster.push([np.ones(1, np.float32)], loss=0.0, examples=1)
                {then}
        """
        with LocalCluster(1) as ps:
            self.assertEqual(ps.run(text.replace("{then}", "pass")).wait(), 0)
            ps.await_end(0)
        with LocalCluster(1) as ps:
            script = ps.run(text.replace("{then}", "raise KeyError(batch)"))
            self.assertEqual(script.wait(), 1)
            ps.await_end(1)
            self.assertIn("KeyError: 0", ps.logs())

    def test_refused(self):
        with LocalCluster(1) as ps:
            text = WAITING.format(steps=0, then="")
            script = ps.run(text)
            self.assertEqual(script.wait(), 2, script.output)
            self.assertIn("total_steps", script.output.splitlines()[-1])

    def test_told_to_stop(self):
        with LocalCluster(1) as ps:
            for number, code in ((signal.SIGTERM, 138), (signal.SIGINT, -signal.SIGINT)):
                # In Python, and in a wait in the library.
                for waits in ("time.sleep(60)", "holdfast.connect(job_name='worker', "
                              "task_index=0, cluster={'ps': ['127.0.0.1:1'], "
                              "'worker': ['127.0.0.1:2']})"):  # fmt: skip
                    with self.subTest(number=number, waits=waits):
                        script = ps.run(WAITING.format(steps=3, then=waits))
                        script.await_output("batch 0")
                        time.sleep(0.2)
                        begin = time.monotonic()
                        script.process.send_signal(number)
                        self.assertEqual(script.wait(), code, script.output)
                        self.assertLess(time.monotonic() - begin, 2)
            # It left properly: the place was free for the next worker at once, and nothing has
            # failed.
            script = ps.run(WAITING.format(steps=3, then=""))
            self.assertEqual(script.wait(), 0, script.output)
            ps.await_end()

    def test_stopped_by_an_operator(self):
        with LocalCluster(2, 2) as ps:
            undisturbed = [ps.run(TRAIN, i) for i in range(2)]
            digest = undisturbed[0].result()["digest"]
        with LocalCluster(2, 2) as ps:
            scripts = [ps.run(TRAIN, i) for i in range(2)]
            scripts[0].await_output("batch 10")
            stop = subprocess.run(
                [HOLDFAST, "stop", "--cluster_spec=" + json.dumps(ps.spec)],
                capture_output=True,
                text=True,
                check=False,
            )
            self.assertEqual(stop.returncode, 0, stop.stderr)
            self.assertRegex(stop.stdout, "^The job was stopped at step [1-9][0-9]* of 60; ")
            for script in scripts:
                self.assertEqual(script.wait(), 0, script.output)
                self.assertRegex(
                    script.output.splitlines()[-1],
                    "^holdfast: the job was stopped at step [1-9][0-9]* of 60; started again "
                    "with the same checkpoint directory, it goes on from there$",
                )
                self.assertNotIn("Traceback", script.output)
            ps.await_end()
            ps.start_again()
            scripts = [ps.run(TRAIN, i) for i in range(2)]
            self.assertEqual(scripts[0].result()["digest"], digest)
            self.assertNotIn("batch 0\n", scripts[0].output)
            self.assertEqual(scripts[1].wait(), 0, scripts[1].output)
            ps.await_end()

    def test_finished_before(self):
        with LocalCluster() as ps:
            digest = ps.run(TRAIN).result()["digest"]
            ps.await_end()
            ps.start_again()
            script = ps.run(TRAIN)
            self.assertEqual(script.result(), {"digest": digest, "rollbacks": []})
            self.assertNotIn("batch", script.output)
            ps.await_end()
            checkpoint = holdfast.load_checkpoint(ps.checkpoints)
            self.assertEqual(holdfast.digest(checkpoint.values), digest)

    def test_interrupted_while_it_waits_for_others(self):
        # The step waits for worker 1, which never comes.
        with LocalCluster(1, 2) as ps:
            cluster = holdfast.connect(**ps.task(), connect_timeout=60)
            begin = time.monotonic()
            with self.assertRaises(KeyboardInterrupt), interrupted_after(0.5), cluster:
                cluster.declare(
                    {"w": holdfast.Variable(1)}, optimizer=holdfast.Sgd(learning_rate=1), steps=3
                )
                for _ in cluster.batches():
                    cluster.push([np.ones(1, FLOAT32)], loss=0.0, examples=1)
            self.assertLess(time.monotonic() - begin, 3)


def use_in_child(cluster):
    """What every method says in a child: an exit code that is 0 where each has refused."""
    uses = (
        cluster.status,
        cluster.pull,
        cluster.checkpoint,
        cluster.outcomes,
        lambda: cluster.push([np.ones(1, FLOAT32)], loss=0.0, examples=1),
        lambda: next(cluster.batches()),
        lambda: cluster.step,
    )
    for use in uses:
        try:
            use()
        except holdfast.Error as error:
            if "was made from it by fork()" not in str(error):
                return 1
        else:
            return 2
    return 0


def square(number):
    return number * number


def setUpModule():
    # A shell that runs tests in the background ignores the signal.
    signal.signal(signal.SIGINT, signal.default_int_handler)


class ProcessesTest(unittest.TestCase):
    def setUp(self):
        self.ps = LocalCluster(1)
        self.addCleanup(self.ps.__exit__)
        self.cluster = holdfast.connect(**self.ps.task())
        self.addCleanup(self.cluster.close)
        self.cluster.declare(
            {"w": holdfast.Variable(1)}, optimizer=holdfast.Sgd(learning_rate=1.0), steps=2
        )
        self.batches = self.cluster.batches()
        next(self.batches)

    def check_that_it_goes_on(self):
        for _ in range(2):
            self.cluster.push([np.ones(1, FLOAT32)], loss=0.0, examples=1)
            next(self.batches, None)
        self.assertEqual(self.cluster.pull()["w"], -2)

    def test_fork(self):
        sys.stdout.flush()
        child = os.fork()
        if child == 0:
            code = 3
            try:
                with contextless(self.cluster):
                    code = use_in_child(self.cluster)
            finally:
                os._exit(code)
        self.assertEqual(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]), 0)
        self.check_that_it_goes_on()

    def test_a_child_that_ends_as_python_does(self):
        # Runs exit handlers, finalizers and the library's destructors.
        script = self.ps.run(
            """
            import os, sys, numpy as np, holdfast
            with holdfast.connect(job_name="client") as cluster:
                values = cluster.pull()
                child = os.fork()
                if child == 0:
                    sys.exit(7)
                status = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
                assert status == 7, status
                assert cluster.status().phase == "TRAINING"
            """
        )
        self.assertEqual(script.wait(30), 0, script.output)
        self.check_that_it_goes_on()

    def test_workers_of_a_loader(self):
        for method in ("fork", "spawn"):
            with self.subTest(method), multiprocessing.get_context(method).Pool(2) as pool:
                self.assertEqual(pool.map(square, range(4)), [0, 1, 4, 9])
        self.check_that_it_goes_on()

    def test_spawn_does_not_take_it_along(self):
        process = multiprocessing.get_context("spawn").Process(target=square, args=(self.cluster,))
        with self.assertRaisesRegex(TypeError, "belongs to one process"):
            process.start()


class contextless:  # noqa: N801
    """The end of a with statement that the child has inherited."""

    def __init__(self, cluster):
        self.cluster = cluster

    def __enter__(self):
        pass

    def __exit__(self, *error):
        self.cluster.__exit__(None, None, None)


if __name__ == "__main__":
    unittest.main()
