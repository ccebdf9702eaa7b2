# SPDX-License-Identifier: Apache-2.0

"""--tensorboard_dir, as TensorBoard reads it."""

import json
import os
import tempfile
import unittest

import environments

# Kills ps 0 between two checkpoints, so that the job rolls back some steps.
_TRAIN = """
import os, signal, sys, time
import numpy as np
import holdfast

def kill_ps_0():
    children = open(f"/proc/{os.getppid()}/task/{os.getppid()}/children").read().split()
    for child in map(int, children):
        words = open(f"/proc/{child}/cmdline").read().split(chr(0))
        if "--job_name=ps" in words and "--task_index=0" in words:
            os.kill(child, signal.SIGKILL)

with holdfast.connect() as cluster:
    cluster.declare(
        {"w": np.zeros(4, np.float32)}, optimizer=holdfast.Sgd(learning_rate=0.1), steps=40,
        checkpoints=holdfast.Checkpoints(every_steps=15),
    )
    killed = False
    for step in cluster.batches():
        if step == 25 and not killed:
            # Waits until everything available has been written.
            time.sleep(2.5)
            killed = True
            kill_ps_0()
        cluster.push({"w": np.ones(4, np.float32)}, loss=1 / (step + 1), examples=8)
"""

_READ = """
import json, sys
from tensorboard.backend.event_processing.event_accumulator import EventAccumulator
events = EventAccumulator(sys.argv[1], size_guidance={"scalars": 0}).Reload()
print(json.dumps({
    tag: [(event.step, event.value) for event in events.Scalars(tag)]
    for tag in events.Tags()["scalars"]
}))
"""


class TensorBoardTest(unittest.TestCase):
    def test_steps_rise_after_a_roll_back(self):
        environment = environments.Environment("/usr/bin/python3", "tensorboard==2.21.0")
        with tempfile.TemporaryDirectory() as folder:
            script = os.path.join(folder, "train.py")
            with open(script, "w", encoding="utf-8") as file:
                file.write(_TRAIN)
            board = os.path.join(folder, "board")
            said = environment.run(
                "holdfast", "local", "--ps=2", "--workers=1", "--on_failure=restart", f"--run_dir={folder}/run",
                f"--ps_flags=--tensorboard_dir={board}", "--", "python", script,
            )
            self.assertIn("; restarts in", said)
            files = sorted(os.listdir(board))
            scalars = json.loads(environment.python("-c", _READ, board).splitlines()[-1])
        self.assertEqual(len(files), 2, files)
        self.assertGreaterEqual(
            set(scalars), {"loss", "steps_per_second", "examples_per_second"}
        )
        # Steps 16 to 25 were made twice.
        self.assertEqual([step for step, _ in scalars["loss"]], list(range(1, 41)))
        for step, loss in scalars["loss"]:
            self.assertAlmostEqual(loss, 1 / step, places=6)


if __name__ == "__main__":
    unittest.main()
