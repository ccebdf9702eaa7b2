# SPDX-License-Identifier: Apache-2.0

"""How jobs end: finish(), scripts that leave early, and those that come after the end."""

import json
import os
import subprocess
import sys
import unittest

import numpy as np
from local_cluster import LocalCluster, await_that

import holdfast

HOLDFAST = os.environ.get("HOLDFAST", "cli/holdfast")

# Each step subtracts 1. `then` is called in the body of the loop with the batch.
TRAIN = """
    import json, os, sys, time
    import numpy as np
    import holdfast
    one = np.ones(2, np.float32)
    with holdfast.connect() as cluster:
        cluster.declare(
            {{"w": holdfast.Variable(2)}},
            optimizer=holdfast.Sgd(learning_rate=1.0),
            steps=300,
            {declared}
        )
        print("joined")
        pushed = 0
        for batch in cluster.batches():
            {before}
            cluster.push([one], loss=0.0, examples=1)
            pushed += 1
            {after}
        {end}
        w = cluster.pull()["w"]
    print(json.dumps({{"w": w.tolist(), "pushed": pushed}}))
"""


def script(*, declared="", before="pass", after="pass", end="pass"):
    return TRAIN.format(declared=declared, before=before, after=after, end=end)


def events(ps):
    command = [HOLDFAST, "events", "--cluster_spec=" + json.dumps(ps.spec), "--json"]
    done = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=True)
    return [json.loads(line)["text"] for line in done.stdout.splitlines()]


class FinishTest(unittest.TestCase):
    def check(self, ps, *scripts):
        """All scripts end with the same final values, and the ps with them."""
        results = [one.result() for one in scripts]
        for result in results:
            self.assertEqual(result["w"], results[0]["w"])
        ps.await_end()
        text = ps.logs()
        self.assertRegex(text, r"/job:worker/task:\d \(\S+\) has ended the job at step \d+ of 300")
        return results

    def test_within_the_loop_with_the_batch_answered(self):
        with LocalCluster(2, 2) as ps:
            one = ps.run(script(after="if pushed == 5: cluster.finish()"))
            other = ps.run(script(), 1)
            [first, _] = self.check(ps, one, other)
            self.assertEqual(first, {"w": [-5.0, -5.0], "pushed": 5})
            checkpoint = holdfast.load_checkpoint(ps.checkpoints)
            self.assertEqual(checkpoint.step, 5)
            self.assertEqual(checkpoint.values["w"].tolist(), first["w"])
            self.assertIn("the job is done: 5 steps", ps.logs())

    def test_within_the_loop_without_an_answer(self):
        # The script leaves its loop at once; the batch that it has does not count.
        then = "if pushed == 5: cluster.finish(); break"
        for declared in (
            "",
            'examples="by_ticket",',
            "consistency=holdfast.Asynchronous(),",
            "consistency=holdfast.Asynchronous(pipeline_depth=3),",
        ):
            with self.subTest(declared), LocalCluster(1, 1) as ps:
                [result] = self.check(ps, ps.run(script(declared=declared, before=then)))
                self.assertEqual(result, {"w": [-5.0, -5.0], "pushed": 5})

    def test_asynchronous_with_others(self):
        with LocalCluster(2, 2) as ps:
            declared = "consistency=holdfast.Asynchronous(),"
            one = ps.run(
                script(declared=declared, before="if pushed == 5: cluster.finish(); break")
            )
            # Called by both, and again after the end.
            other = ps.run(
                script(
                    declared=declared,
                    after="if pushed == 5: cluster.finish()",
                    end="cluster.finish(); cluster.finish()",
                ),
                1,
            )
            results = self.check(ps, one, other)
            counted = sum(result["pushed"] for result in results)
            self.assertEqual(results[0]["w"], [-counted, -counted])

    def test_before_the_first_batch_and_in_a_process_of_its_own(self):
        with LocalCluster(1, 1) as ps, holdfast.connect(**ps.task(), connect_timeout=60) as cluster:
            cluster.declare(
                {"w": holdfast.Variable(2)}, optimizer=holdfast.Sgd(learning_rate=1), steps=3
            )
            cluster.finish()
            self.assertEqual(list(cluster.batches()), [])
            self.assertEqual(cluster.pull()["w"].tolist(), [0, 0])
            cluster.finish()
            with (
                holdfast.connect(ps.spec, job_name="client") as client,
                self.assertRaisesRegex(holdfast.Refused, "client.* is not a worker"),
            ):
                client.finish()

    def test_survives_the_loss_of_ps_0(self):
        # The decision is on disk; the last checkpoint is not, because it cannot be written.
        with LocalCluster(1, 1) as ps:
            one = ps.run(
                script(
                    declared="checkpoints=holdfast.Checkpoints(every_steps=2),",
                    after="if pushed == 5: print('five'); cluster.finish()",
                )
            )
            one.await_output("five")
            ps.kill_ps(0)
            one.wait()
            ps.await_end()
            self.assertEqual(one.wait(), 0, one.output + ps.logs())
            step = holdfast.load_checkpoint(ps.checkpoints).step
            self.assertLess(step, 300)


class LeaveTest(unittest.TestCase):
    def left(self, text, **environment):
        """What is told of worker 1 that runs `text`, while worker 0 waits for it."""
        with LocalCluster(1, 2) as ps:
            waiting = ps.run(script())
            leaver = ps.run(text, 1, **environment)
            code = leaver.wait()
            told = [event for event in events(ps) if "worker/task:1" in event and " left " in event]
            self.assertEqual(waiting.process.poll(), None)
            return code, told

    def test_a_program_that_ends(self):
        bare = """
            import sys
            import numpy as np
            import holdfast
            cluster = holdfast.connect()
            cluster.declare({"w": holdfast.Variable(2)},
                            optimizer=holdfast.Sgd(learning_rate=1.0), steps=300)
            for batch in cluster.batches():
                if cluster.step == 3:
                    %s
                cluster.push([np.ones(2, np.float32)], loss=0.0, examples=1)
        """
        ended = "its program has ended without an error; to end the job for all, call finish()"
        for text, what in (
            (bare % "break", ended),
            (bare % "sys.exit(0)", ended),
            (script(before="if pushed == 3: sys.exit()"), ended),
            (script(before="if pushed == 3: break"), "its program has closed the cluster; to end"),
        ):
            with self.subTest(text):
                code, told = self.left(text)
                self.assertEqual(code, 0)
                [event] = told
                self.assertIn(f" left at step 3 of 300: {what}", event)
                self.assertIn("the job waits for it for 5m at most", event)

    def test_a_program_that_is_told_to_stop(self):
        code, told = self.left(
            script(before="if pushed == 3: os.kill(os.getpid(), 15); time.sleep(60)")
        )
        self.assertEqual(code, 138)
        self.assertNotIn("finish()", told[0])

    def test_others_are_told_whom_they_wait_for(self):
        with LocalCluster(1, 2) as ps:
            waiting = ps.run(script())
            ps.run(script(before="if pushed == 3: sys.exit(0)"), 1)
            waiting.await_output("left: its program has ended without an error)")
            status = ps.status().everything
            self.assertIn("task:1", status["waiting_for"])
            self.assertIn("left: its program has ended without an error)", status["waiting_for"])

    def test_holdfast_local_does_not_wait_in_vain(self):
        with LocalCluster(0, 1) as folder:
            path = os.path.join(folder.folder, "train.py")
            with open(path, "w", encoding="utf-8") as file:
                file.write(
                    "import os, json\n"
                    "index = json.loads(os.environ['TF_CONFIG'])['task']['index']\n"
                    + "\n".join(
                        line[4:]
                        for line in script(
                            before="if pushed == 3 and index == 1: sys.exit(0)"
                        ).splitlines()
                    )
                )
            command = [HOLDFAST, "local", f"--run_dir={folder.folder}/run", "--", sys.executable]
            done = subprocess.run(
                [*command, path], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
                check=False, timeout=60,
            )  # fmt: skip
            self.assertEqual(done.returncode, 1, done.stdout)
            early = "ended with exit status 0, but the job is not done"
            self.assertRegex(done.stdout, rf"worker-1 \(pid \d+\) {early}: ")
            self.assertIn(f"worker-1 {early}, and waits for it: ", done.stdout)
            self.assertIn("holdfast local", done.stdout.splitlines()[-1])


class LateTest(unittest.TestCase):
    def test_the_chief_started_again_after_its_last_push(self):
        for declared in ("", "consistency=holdfast.Asynchronous(),"):
            with self.subTest(declared), LocalCluster(2, 1, flags=("--lease=1s",)) as ps:
                ends = {"declared": declared, "after": "if pushed == 5: cluster.finish()"}
                dies = ps.run(script(**ends, end="os.kill(os.getpid(), 9)"))
                self.assertEqual(dies.wait(), -9)
                again = ps.run(script(**ends))
                self.assertEqual(again.result(), {"w": [-5.0, -5.0], "pushed": 0})
                ps.await_end()

    def test_a_worker_that_was_lost_before_the_end(self):
        with LocalCluster(1, 2, flags=("--lease=1s",)) as ps:
            go = os.path.join(ps.folder, "go")
            wait = f"while not os.path.exists({go!r}): time.sleep(0.01)"
            one = ps.run(
                script(
                    after=f"""
            if pushed == 5:
                {wait}
                cluster.finish()"""
                )
            )
            dies = ps.run(script(after="if pushed == 5: os.kill(os.getpid(), 9)"), 1)
            self.assertEqual(dies.wait(), -9)
            ps.await_lost_worker()
            with open(go, "w", encoding="utf-8"):
                pass
            result = one.result()
            again = ps.run(script(), 1)
            self.assertEqual(again.result(), {"w": result["w"], "pushed": 0})
            ps.await_end()

    def finished(self, ps):
        """The final values of a job whose ps have ended, and were started again."""
        w = ps.run(script(after="if pushed == 5: cluster.finish()")).result()["w"]
        ps.await_end()
        self.start_again(ps)
        return w

    def move(self, ps):
        """Moves the last checkpoint to another directory, and returns that."""
        elsewhere = ps.checkpoints + "-elsewhere"
        os.mkdir(elsewhere)
        [name] = [name for name in os.listdir(ps.checkpoints) if name.startswith("g0001-step")]
        os.rename(os.path.join(ps.checkpoints, name), os.path.join(elsewhere, name))
        return elsewhere

    def start_again(self, ps):
        ps.start_again()
        await_that(lambda: int(ps.status().everything["generation"]) > 1, "a generation")

    def test_started_after_the_end(self):
        with LocalCluster() as ps:
            w = self.finished(ps)
            result = ps.run(script()).result()
            self.assertEqual(result, {"w": w, "pushed": 0})
            ps.await_end()

    def test_pull_without_a_loop(self):
        with LocalCluster() as ps:
            w = self.finished(ps)
            with holdfast.connect(**ps.task(), connect_timeout=60) as cluster:
                cluster.declare(
                    {"w": holdfast.Variable(2)}, optimizer=holdfast.Sgd(learning_rate=1.0),
                    steps=300,
                )  # fmt: skip
                self.assertEqual(cluster.pull()["w"].tolist(), w)
            ps.await_end()

    def test_nowhere(self):
        with LocalCluster() as ps:
            self.finished(ps)
            self.move(ps)
            lost = ps.run(script())
            self.assertEqual(lost.wait(), 0, lost.output)
            self.assertRegex(
                lost.output.splitlines()[-1],
                "^holdfast: the job has already finished, and its ps no longer have variables; its "
                "last checkpoint, which holds them, cannot be read here: .*HOLDFAST_CHECKPOINT_DIR",
            )
            self.assertNotIn('"pushed"', lost.output)

    def test_where_the_script_sees_them(self):
        with LocalCluster() as ps:
            w = self.finished(ps)
            result = ps.run(script(), HOLDFAST_CHECKPOINT_DIR=self.move(ps)).result()
            self.assertEqual(result, {"w": w, "pushed": 0})

    def test_memory_of_the_caller(self):
        # As torch's Optimizer reads values.
        with LocalCluster() as ps:
            w = self.finished(ps)
            for there in (True, False):
                if not there:
                    self.move(ps)
                cluster = holdfast.connect(**ps.task(), connect_timeout=60)
                cluster.declare(
                    {"w": holdfast.Variable(2)}, optimizer=holdfast.Sgd(learning_rate=1.0),
                    steps=300,
                )  # fmt: skip
                own = np.full(2, 9, np.float32)
                place = holdfast._loop.Place(
                    (holdfast._loop.ctypes.c_void_p * 1)(own.ctypes.data), own
                )
                loop = cluster._begin(place)
                if there:
                    self.assertTrue(loop.take().done)
                    self.assertEqual(own.tolist(), w)
                else:
                    with self.assertRaisesRegex(holdfast.Unavailable, "cannot be read here"):
                        loop.take()
                cluster.close()
                if there:
                    ps.await_end()
                    self.start_again(ps)


if __name__ == "__main__":
    unittest.main()
