# SPDX-License-Identifier: Apache-2.0

"""The scripts of docs/python/torch.md, run from its text."""

import os
import re
import subprocess
import tempfile
import unittest

from local_cluster import LocalCluster, unused_addresses

with open("docs/python/torch.md", encoding="utf-8") as file:
    TEXT = file.read()
SCRIPTS = dict(re.findall(r"^```python\n# (\S+)\n(.*?)^```$", TEXT, re.M | re.S))
COMMANDS = re.findall(r"^```sh\n(.*?)^```$", TEXT, re.M | re.S)
ENVIRONMENT = {"OMP_NUM_THREADS": "1"}


def run(name, *, ranks=1, of_worker=True):
    """The outputs of two workers; the ranks of each worker form one group, or all ranks do."""
    with LocalCluster(2, 2) as ps:
        scripts = []
        ports = [unused_addresses(1)[0].rsplit(":", 1)[1] for _ in range(2)]
        for worker in range(2):
            for rank in range(ranks):
                number, size = (rank, ranks) if of_worker else (worker, 2)
                group = {
                    "RANK": str(number), "WORLD_SIZE": str(size), "MASTER_ADDR": "127.0.0.1",
                    "MASTER_PORT": ports[worker if of_worker else 0],
                    "GLOO_SOCKET_IFNAME": "lo",
                }
                scripts.append(ps.run(SCRIPTS[name], worker, **ENVIRONMENT, **group))
        for script in scripts:
            if script.wait(200) != 0:
                raise AssertionError(script.output)
        ps.await_end()
        return [script.output for script in scripts]


class DocsTest(unittest.TestCase):
    def test_there_is_no_other_block(self):
        self.assertEqual(TEXT.count("```"), 2 * (len(SCRIPTS) + len(COMMANDS)))

    def test_train(self):
        # The command in the text.
        [command] = COMMANDS
        with tempfile.TemporaryDirectory() as folder:
            with open(os.path.join(folder, "train.py"), "w", encoding="utf-8") as file:
                file.write(SCRIPTS["train.py"])
            text = command.replace("/tmp/", folder + "/").replace("python3 ", "python ")
            done = subprocess.run(
                ["/bin/bash", "-euc", text], cwd=folder, stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT, text=True, check=False,
            )
        self.assertEqual(done.returncode, 0, done.stdout)
        [accuracy] = re.findall(r"^accuracy (0\.\d+)$", done.stdout, re.M)
        # Guessing gets a tenth right.
        self.assertGreater(float(accuracy), 0.9)

    def test_accumulate(self):
        chief, other = run("accumulate.py")
        losses = [float(line) for line in chief.splitlines()]
        self.assertEqual(len(losses), 4 * 20)
        self.assertLess(sum(losses[-4:]), sum(losses[:4]))
        self.assertEqual(other, "")

    def test_amp(self):
        for output in run("amp.py"):
            # Initially about 8, the variance of a sum of 8 numbers of variance 1.
            self.assertLess(float(output.split()[-1]), 4)

    def test_weights(self):
        for output in run("weights.py"):
            # The loss of guessing is ln 10 = 2.3.
            self.assertLess(float(output.split()[-1]), 2)

    def test_embedding(self):
        for output in run("embedding.py"):
            # The variance of a mean of six numbers of variance 1 is 0.17.
            self.assertLess(float(output.split()[-1]), 0.05)

    def test_parallel(self):
        for output in run("parallel.py", of_worker=False):
            # The variance of a mean of six bits is 0.042.
            self.assertLess(float(output.split()[-1]), 0.02)

    def test_group(self):
        for output in run("group.py", ranks=2):
            # Initially about 8, the variance of a sum of 8 numbers of variance 1.
            self.assertLess(float(output.split()[-1]), 4)


if __name__ == "__main__":
    unittest.main()
