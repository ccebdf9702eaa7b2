# SPDX-License-Identifier: Apache-2.0

"""Evaluators that are scripts, against real ps daemons; and docs/python/evaluation.md."""

import os
import re
import unittest

from local_cluster import LocalCluster

import holdfast

with open("docs/python/evaluation.md", encoding="utf-8") as file:
    TEXT = file.read()
SCRIPTS = dict(re.findall(r"^```python\n# (\S+)\n(.*?)^```$", TEXT, re.M | re.S))

# Step i subtracts 1 from w, which the evaluator reports.
WORKER = """
    import numpy as np
    import holdfast
    with holdfast.connect() as cluster:
        cluster.declare(
            {{"w": holdfast.Variable(2)}},
            optimizer=holdfast.Sgd(learning_rate=1.0),
            steps={steps},
            checkpoints=holdfast.Checkpoints(every_steps=2),
            evaluation=holdfast.Evaluation({evaluation}),
        )
        for batch in cluster.batches():
            cluster.push([np.ones(2, np.float32)], loss=0.5, examples=1)
        print(cluster.pull()["w"][0])
"""
EVALUATOR = """
    import holdfast
    seen = []
    def evaluate(variables, step):
        assert variables["w"][0] == -step, (variables, step)
        seen.append(step)
        variables["w"][0] = 7  # the function's own
        return {figures}
    with holdfast.connect() as cluster:
        print("joined")
        cluster.evaluate(evaluate, examples=10)
    print(seen)
"""


class EvaluatorTest(unittest.TestCase):
    def start(self, steps, evaluation, figures):
        ps = LocalCluster(2, 1, num_evaluators=1)
        self.addCleanup(ps.__exit__)
        evaluator = ps.run(
            EVALUATOR.format(figures=figures),
            job_name="evaluator",
            HOLDFAST_CHECKPOINT_DIR=ps.checkpoints,
        )
        # The job does not wait for the evaluator, and might be done before it.
        evaluator.await_output("joined")
        worker = ps.run(WORKER.format(steps=steps, evaluation=evaluation))
        return ps, worker, evaluator

    def test_evaluates_until_the_job_is_done(self):
        ps, worker, evaluator = self.start(6, "", "{'loss': 1.0 / step, 'f1': step}")
        self.assertEqual(worker.result(), -6)
        # The last one is always evaluated; earlier ones as time allows.
        seen = evaluator.result()
        self.assertEqual(seen, sorted(set(seen)))
        self.assertEqual(seen[-1], 6)
        ps.await_end()

    def test_the_best_are_kept_and_the_job_ends_early(self):
        ps, worker, evaluator = self.start(
            1000,
            "every_steps=2, keep_best=holdfast.KeepBest(),"
            "early_stopping=holdfast.EarlyStopping(patience=2, at_fixed_steps=True)",
            "abs(step - 4.0)",
        )
        # Steps 6 and 8 are no better than 4.
        seen = evaluator.result()
        self.assertEqual(seen[:4], [2, 4, 6, 8])
        self.assertEqual(worker.result(), -seen[-1])
        self.assertLess(seen[-1], 20)
        ps.await_end()
        best = os.path.join(ps.checkpoints, "best")
        [name] = os.listdir(best)
        self.assertEqual(holdfast.load_checkpoint(os.path.join(best, name)).step, 4)

    def test_an_exception_ends_the_evaluator_and_not_the_job(self):
        ps, worker, evaluator = self.start(4, "", "1 / 0")
        self.assertEqual(evaluator.wait(), 1)
        self.assertIn("ZeroDivisionError", evaluator.output)
        self.assertEqual(worker.result(), -4)
        ps.await_end()

    def test_checkpoints_that_are_elsewhere(self):
        with LocalCluster(num_evaluators=1) as ps:
            task = {"cluster": ps.spec, "job_name": "evaluator", "task_index": 0}
            with holdfast.connect(**task) as cluster:
                self.assertEqual(cluster.task, "/job:evaluator/task:0")
                self.assertFalse(cluster.is_chief)
                with self.assertRaisesRegex(ValueError, "HOLDFAST_CHECKPOINT_DIR"):
                    cluster.evaluate(lambda variables, step: 0.0)
                with self.assertRaisesRegex(holdfast.Refused, "declares nothing"):
                    cluster.declare({}, optimizer=holdfast.Sgd(learning_rate=1.0), steps=1)

    def test_the_documented_scripts(self):
        with LocalCluster(1, 1, num_evaluators=1) as ps:
            environment = {"OMP_NUM_THREADS": "1", "HOLDFAST_CHECKPOINT_DIR": ps.checkpoints}
            evaluator = ps.run(SCRIPTS["train.py"], job_name="evaluator", **environment)
            worker = ps.run(SCRIPTS["train.py"], **environment)
            self.assertEqual(worker.wait(200), 0, worker.output)
            self.assertEqual(evaluator.wait(200), 0, evaluator.output)
            ps.await_end()
            best = os.listdir(os.path.join(ps.checkpoints, "best"))
            self.assertEqual(len(best), 2)


if __name__ == "__main__":
    unittest.main()
