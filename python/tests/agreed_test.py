# SPDX-License-Identifier: Apache-2.0

"""Facts on which all workers of a job, and all lives of each, agree."""

import unittest

import numpy as np
from local_cluster import LocalCluster

import holdfast
from holdfast import job

ONE = np.ones(1, np.float32)

# Brings facts, prints "agreed", and trains once the file exists that it is told.
SCRIPT = """
    import os, time
    import numpy as np
    import holdfast
    with holdfast.connect() as cluster:
        cluster.declare({{"w": holdfast.Variable(1)}}, optimizer=holdfast.Sgd(learning_rate=1.0),
                        steps=2, agreed={declared})
        cluster.agree({later})
        print("agreed", flush=True)
        while not os.path.exists({file!r}):
            time.sleep(0.01)
        for batch in cluster.batches():
            cluster.push([np.ones(1, np.float32)], loss=0.0, examples=1)
"""


def declare(cluster, agreed=None, *, steps=4):
    cluster.declare(
        {"w": holdfast.Variable(1)},
        optimizer=holdfast.Sgd(learning_rate=1.0),
        steps=steps,
        agreed=agreed,
    )


class AgreedTest(unittest.TestCase):
    def assert_refused(self, text, function, *arguments):
        with self.assertRaises(holdfast.Refused) as caught:
            function(*arguments)
        self.assertIn(text, str(caught.exception))
        self.assertEqual(caught.exception.exit_code, 2)

    def test_workers_compare(self):
        with LocalCluster(1, 3) as ps, holdfast.connect(**ps.task(0)) as chief:
            declare(chief, {"dataset length": 60000})
            with holdfast.connect(**ps.task(1)) as other:
                declare(other, {"dataset length": "60000", "batch size": np.int64(32)})
                other.agree({"buffers": "c0ffee"})
                with holdfast.connect(**ps.task(2)) as third:
                    self.assert_refused(
                        "/job:worker/task:2 has dataset length 50000, the job has 60000: it must "
                        "be the same in every worker and after each restart",
                        declare,
                        third,
                        {"dataset length": 50000},
                    )
                    # As in a notebook, the corrected cell runs again.
                    declare(third, {"dataset length": 60000})
                    self.assert_refused("buffers decaf, the job has c0ffee", third.agree,
                                        {"buffers": "decaf"})  # fmt: skip
                self.assert_refused("batch size 64, the job has 32", chief.agree,
                                    {"batch size": 64})  # fmt: skip
                # The others still train.
                chief.agree({})
                self.assertEqual(chief.status().phase, "TRAINING")

    def test_a_job_that_resumes_compares(self):
        with LocalCluster(1) as ps:
            with holdfast.connect(**ps.task()) as cluster:
                declare(cluster, {"dataset length": 60000}, steps=1)
                cluster.agree({"batch size": 32})
                for _ in cluster.batches():
                    cluster.push([ONE], loss=0.0, examples=1)
            ps.await_end()
            ps.start_again()
            with holdfast.connect(**ps.task()) as cluster:
                self.assert_refused("batch size 64, the job has 32: ", declare, cluster,
                                    {"batch size": 64})  # fmt: skip
            for daemon in ps.ps:
                daemon.kill()
                daemon.wait()
            ps.start_again()
            with holdfast.connect(**ps.task()) as cluster:
                declare(cluster, {"batch size": 32}, steps=2)
                self.assertEqual(cluster.status().total_steps, 2)
                self.assert_refused("dataset length 1, the job has 60000", cluster.agree,
                                    {"dataset length": 1})  # fmt: skip

    def test_a_coordinator_that_was_killed_knows_them_again(self):
        with LocalCluster(1, 2) as ps:
            go = f"{ps.folder}/go"
            chief = ps.run(SCRIPT.format(declared={"a": 1}, later={"b": 2}, file=go), 0)
            chief.await_output("agreed")
            other = ps.run(SCRIPT.format(declared={"c": 3}, later={"b": 2}, file=go), 1)
            other.await_output("agreed")
            ps.kill_ps(0)
            open(go, "w").close()
            self.assertEqual((chief.wait(), other.wait()), (0, 0), chief.output + other.output)
            ps.await_end()
            ps.start_again()
            with holdfast.connect(**ps.task()) as cluster:
                self.assert_refused("has c 4, the job has 3", declare, cluster, {"c": 4})

    def test_arguments(self):
        with self.assertRaisesRegex(TypeError, "fact 'rate'.* got 0.5"):
            job.facts_of({"rate": 0.5})
        with self.assertRaisesRegex(TypeError, "fact 'flag'.* got True"):
            job.facts_of({"flag": True})
        with self.assertRaisesRegex(TypeError, "name must be a str, is 1"):
            job.facts_of({1: "x"})
        self.assertEqual(
            job.facts_text(job.facts_of({'a "b"\n': -5})),
            'agreed { key: "a \\"b\\"\\n" value: "-5" }\n',
        )
        with LocalCluster(1) as ps, holdfast.connect(**ps.task()) as cluster:
            self.assert_refused("call holdfast_await_variables first", cluster.agree, {"a": 1})
            self.assert_refused("at most 256 bytes", declare, cluster, {"n" * 257: 1})
            declare(cluster, {"größe": "ß"})
            self.assert_refused("größe ss, the job has ß", cluster.agree, {"größe": "ss"})
            self.assert_refused("a name is empty", cluster.agree, {"": 1})


if __name__ == "__main__":
    unittest.main()
