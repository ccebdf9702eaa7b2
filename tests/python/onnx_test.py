# SPDX-License-Identifier: Apache-2.0

"""`holdfast checkpoint export --output=F.onnx`: ONNX Runtime predicts what Holdfast does."""

import csv
import gzip
import os
import re
import struct
import tempfile
import unittest

import environments

EXAMPLES = os.path.join(environments.ROOT, "examples")
MNIST = "/usr/share/datasets/fashion-mnist"

_PREDICT = """
import csv, sys
import numpy as np, onnxruntime
model, inputs, output = sys.argv[1:]
session = onnxruntime.InferenceSession(model, providers=["CPUExecutionProvider"])
names = [output.name for output in session.get_outputs()]
values = session.run(["probabilities"], {"input": np.load(inputs)})[0]
assert names == ["outputs", "probabilities"], names
with open(output, "w", newline="") as file:
    csv.writer(file).writerows([repr(float(x)) for x in row] for row in values)
"""

_INPUTS = """
import sys
import numpy as np
images, output = sys.argv[1:]
bytes = np.fromfile(images, np.uint8)[16:]
np.save(output, bytes.reshape(-1, 28, 28).astype(np.float32) / np.float32(255))
"""

_IRIS = """
import csv, sys
import numpy as np
table, output = sys.argv[1:]
rows = [[float(x) for x in row[:4]] for row in list(csv.reader(open(table)))[1:]]
mean, deviation = [5.84, 3.06, 3.76, 1.20], [0.825, 0.434, 1.76, 0.760]
np.save(output, ((np.array(rows) - mean) / deviation).astype(np.float32))
"""


def _write_idx(source, target, count):
    """Writes the first `count` rows of a compressed IDX file of bytes, uncompressed."""
    with gzip.open(source) as file:
        content = file.read()
    dimensions = content[3]
    sizes = struct.unpack(f">{dimensions}I", content[4 : 4 + 4 * dimensions])
    row = 1
    for size in sizes[1:]:
        row *= size
    header = content[:4] + struct.pack(f">{dimensions}I", count, *sizes[1:])
    begin = 4 + 4 * dimensions
    with open(target, "wb") as file:
        file.write(header + content[begin : begin + count * row])


class OnnxTest(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.environment = environments.Environment(
            "/usr/bin/python3", "onnxruntime==1.23.2", "numpy"
        )
        cls.folder = tempfile.mkdtemp(prefix="holdfast-onnx-")
        cls.addClassCleanup(environments.shutil.rmtree, cls.folder, ignore_errors=True)
        for name, count in (("train", 500), ("t10k", 100)):
            for kind in ("images-idx3", "labels-idx1"):
                _write_idx(
                    f"{MNIST}/{name}-{kind}-ubyte.gz", f"{cls.folder}/{name}-{kind}-ubyte", count
                )

    def checkpoint(self, job):
        """Trains a job of examples/ for a few steps."""
        with open(os.path.join(EXAMPLES, job + ".textproto"), encoding="utf-8") as file:
            text = file.read()
        text = re.sub(rf"{MNIST}/(\S+)\.gz", r"\1", text)
        text = re.sub(r"^(steps|epochs): .*$", "steps: 8", text, flags=re.MULTILINE)
        text = text.replace('files: "iris.csv"', f'files: "{EXAMPLES}/iris.csv"')
        path = os.path.join(self.folder, job + ".textproto")
        with open(path, "w", encoding="utf-8") as file:
            file.write(text)
        run = os.path.join(self.folder, job)
        self.environment.run(
            "holdfast", "local", f"--job={path}", f"--run_dir={run}", "--status_port=none"
        )
        return os.path.join(run, "checkpoints")

    def probabilities(self, checkpoints, data, inputs, *export_flags):
        """The probabilities [examples][classes] from ONNX Runtime and from Holdfast."""
        model = f"{checkpoints}/../model.onnx"
        self.environment.run(
            "holdfast", "checkpoint", "export", checkpoints, f"--output={model}", *export_flags
        )
        output = f"{checkpoints}/../onnx.csv"
        self.environment.python("-c", _PREDICT, model, inputs, output)
        with open(output, encoding="utf-8") as file:
            theirs = [[float(x) for x in row] for row in csv.reader(file)]
        output = f"{checkpoints}/../predicted.csv"
        self.environment.run(
            "holdfast", "predict", f"--checkpoint={checkpoints}", f"--data={data}",
            f"--output={output}",
        )
        with open(output, encoding="utf-8") as file:
            ours = [[float(x) for x in row[2:]] for row in list(csv.reader(file))[1:]]
        return theirs, ours

    def difference(self, theirs, ours):
        self.assertEqual(len(theirs), len(ours))
        self.assertEqual({len(row) for row in theirs}, {len(row) for row in ours})
        # The rows must differ, since equal ones would hide a wrong input.
        self.assertGreater(len({tuple(row) for row in ours}), len(ours) // 2)
        return max(
            abs(a - b) for row, other in zip(theirs, ours) for a, b in zip(row, other)
        )

    def test_every_kind_of_example_predicts_the_same(self):
        inputs = f"{self.folder}/images.npy"
        images = f"{self.folder}/t10k-images-idx3-ubyte"
        self.environment.python("-c", _INPUTS, images, inputs)
        for job in ("softmax", "mlp_adam", "cnn", "resnet"):
            with self.subTest(job):
                checkpoints = self.checkpoint(f"fashion_mnist_{job}")
                theirs, ours = self.probabilities(checkpoints, images, inputs)
                self.assertEqual((len(ours), len(ours[0])), (100, 10))
                self.assertLess(self.difference(theirs, ours), 2e-5)

    def test_a_table_and_smaller_weights(self):
        table = f"{EXAMPLES}/iris.csv"
        inputs = f"{self.folder}/iris.npy"
        self.environment.python("-c", _IRIS, table, inputs)
        checkpoints = self.checkpoint("iris")
        theirs, ours = self.probabilities(checkpoints, table, inputs)
        self.assertEqual((len(ours), len(ours[0])), (150, 3))
        self.assertLess(self.difference(theirs, ours), 1e-5)
        size = os.path.getsize(f"{checkpoints}/../model.onnx")
        rounded, _ = self.probabilities(checkpoints, table, inputs, "--int8")
        difference = self.difference(rounded, ours)
        self.assertLess(difference, 0.05)
        self.assertGreater(difference, 1e-6)
        self.assertNotEqual(os.path.getsize(f"{checkpoints}/../model.onnx"), size)


if __name__ == "__main__":
    unittest.main()
