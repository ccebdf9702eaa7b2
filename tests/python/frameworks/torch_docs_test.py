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


def run(name, *, ranks=1):
    """The outputs of two workers."""
    with LocalCluster(2, 2) as ps:
        scripts = []
        for worker in range(2):
            port = unused_addresses(1)[0].rsplit(":", 1)[1]
            for rank in range(ranks):
                group = {
                    "RANK": str(rank), "WORLD_SIZE": str(ranks), "MASTER_ADDR": "127.0.0.1",
                    "MASTER_PORT": port, "GLOO_SOCKET_IFNAME": "lo",
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
        # The command that the text has.
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
        # Guessing finds a tenth.
        self.assertGreater(float(accuracy), 0.9)

    def test_accumulate(self):
        chief, other = run("accumulate.py")
        losses = [float(line) for line in chief.splitlines()]
        self.assertEqual(len(losses), 4 * 20)
        self.assertLess(sum(losses[-4:]), sum(losses[:4]))
        self.assertEqual(other, "")

    def test_weights(self):
        for output in run("weights.py"):
            # ln 10, of guessing, is 2.3.
            self.assertLess(float(output.split()[-1]), 2)

    def test_group(self):
        for output in run("group.py", ranks=2):
            # About 8, the variance of a sum of 8 numbers of variance 1, at first.
            self.assertLess(float(output.split()[-1]), 4)


if __name__ == "__main__":
    unittest.main()
