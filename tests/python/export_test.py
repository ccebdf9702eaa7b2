# SPDX-License-Identifier: Apache-2.0

"""`holdfast checkpoint export`, read by the packages that it is for."""

import os
import tempfile
import unittest

import environments

_COMPARE = """
import os, sys
import numpy as np, safetensors.numpy
import holdfast
values = holdfast.load_checkpoint(sys.argv[1]).values
exported = safetensors.numpy.load_file(sys.argv[2])
zipped = np.load(sys.argv[3])
assert list(values) == zipped.files and set(values) == set(exported), (list(values), list(exported))
for name, value in values.items():
    for other in (exported[name], zipped[name]):
        assert other.dtype == np.float32 and np.array_equal(other, value), name
print(len(values), "variables")
"""


class ExportTest(unittest.TestCase):
    def test_safetensors_and_numpy(self):
        environment = environments.Environment("/usr/bin/python3", "safetensors==0.8.0")
        with tempfile.TemporaryDirectory() as folder:
            environment.python(
                "-m", "holdfast.examples.mnist", "--steps=5", f"--run_dir={folder}/run"
            )
            checkpoints = os.path.join(folder, "run", "checkpoints")
            files = [os.path.join(folder, "values" + kind) for kind in (".safetensors", ".npz")]
            for file in files:
                environment.run("holdfast", "checkpoint", "export", checkpoints, f"--output={file}")
            said = environment.python("-c", _COMPARE, checkpoints, *files)
        self.assertEqual(said, "4 variables\n")


if __name__ == "__main__":
    unittest.main()
