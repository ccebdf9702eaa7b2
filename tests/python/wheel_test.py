# SPDX-License-Identifier: Apache-2.0

"""The wheel, installed."""

import os
import subprocess
import tempfile
import unittest
import zipfile

import environments
from environments import ROOT, WHEEL

# Trains on one ps, after whatever was imported before.
_TRAINS = """
import numpy as np, holdfast
with holdfast.connect() as cluster:
    cluster.declare({"w": holdfast.Variable(3)}, steps=5,
                    optimizer=holdfast.Sgd(learning_rate=1.0))
    for batch in cluster.batches():
        cluster.push([np.full(3, -1, np.float32)], loss=0.0, examples=1)
    print("values", cluster.pull()["w"].tolist())
"""
# Uses the parts of each framework that may conflict with our library: protobuf, gRPC, threads.
_FRAMEWORKS = {
    "grpc": """
import grpc
from concurrent import futures
server = grpc.server(futures.ThreadPoolExecutor(1))
port = server.add_insecure_port("127.0.0.1:0")
server.start()
with grpc.insecure_channel(f"127.0.0.1:{port}") as channel:
    grpc.channel_ready_future(channel).result(timeout=60)
server.stop(None)
""",
    "torch": """
import torch
x = torch.ones(8, 8, requires_grad=True)
(x @ x).sum().backward()
assert x.grad.sum() == 1024, x.grad
""",
    "tensorflow": """
import tensorflow as tf
x = tf.Variable(tf.ones([8, 8]))
with tf.GradientTape() as tape:
    y = tf.reduce_sum(x @ x)
assert float(tf.reduce_sum(tape.gradient(y, x))) == 1024
tf.train.Example().SerializeToString()
""",
    "jax": """
import jax, jax.numpy as jnp
assert jax.grad(lambda x: (x @ x).sum())(jnp.ones((8, 8))).sum() == 1024
""",
}


class WheelTest(unittest.TestCase):
    def setUp(self):
        self.environment = environments.with_frameworks()

    def train(self, text):
        """Runs a script as the only worker of a cluster."""
        with tempfile.TemporaryDirectory() as folder:
            path = f"{folder}/train.py"
            with open(path, "w", encoding="utf-8") as file:
                file.write(text)
            return self.environment.run(
                "holdfast", "local", "--ps=1", "--workers=1", f"--run_dir={folder}/run", "--",
                "python", path
            )

    def test_is_one_for_every_python(self):
        print(f"{os.path.getsize(WHEEL) / 2**20:.1f} MiB", end=" ")
        self.assertRegex(
            os.path.basename(WHEEL), r"^holdfast-[0-9.]+-py3-none-manylinux_2_\d+_x86_64\.whl$"
        )
        with zipfile.ZipFile(WHEEL) as wheel:
            names = wheel.namelist()
        libraries = [name for name in names if ".so" in name]
        self.assertEqual(libraries, ["holdfast/libholdfast.so.1"])
        self.assertIn("holdfast/py.typed", names)

    def test_needs_glibc_alone(self):
        glibc = {"ld-linux-x86-64.so.2", "libc.so.6", "libdl.so.2", "libm.so.6",
                 "libpthread.so.0", "librt.so.1"}
        with tempfile.TemporaryDirectory() as folder, zipfile.ZipFile(WHEEL) as wheel:
            for name in wheel.namelist():
                if ".so" not in name and "/scripts/" not in name or name.endswith("/"):
                    continue
                told = environments.run("readelf", "--dynamic", wheel.extract(name, folder))
                needed = {line.split("[")[1].rstrip("]") for line in told.splitlines()
                          if "(NEEDED)" in line}
                self.assertLessEqual(needed, glibc, name)
                if name.endswith(".so.1"):
                    self.assertIn("Library soname: [libholdfast.so.1]", told)

    def test_programs(self):
        version = self.environment.python("-c", "import holdfast; print(holdfast.__version__)")
        for program in ("holdfast", "ps_server", "ps_worker"):
            self.assertIn(f"{program} {version.strip()} (", self.environment.run(program, "--version"))
        self.assertIn(version.strip(), self.environment.python("-m", "holdfast", "--version"))

    def test_packages_agree(self):
        self.assertIn("No broken requirements", self.environment.python("-m", "pip", "check"))

    def test_beside_frameworks_in_both_orders(self):
        for name, use in _FRAMEWORKS.items():
            for text in (use + _TRAINS + use, "import holdfast\n" + use + _TRAINS):
                with self.subTest(name, first=text.split()[1]):
                    self.assertIn("values [5.0, 5.0, 5.0]", self.train(text))

    def test_beside_all_that_go_together(self):
        # PyTorch and TensorFlow do not work together: their copies of LLVM clash.
        for name in ("torch", "tensorflow"):
            text = "".join(_FRAMEWORKS[each] for each in ("grpc", "jax", name))
            with self.subTest(name):
                self.assertIn("values [5.0, 5.0, 5.0]", self.train(text + _TRAINS))


class EveryPythonTest(unittest.TestCase):
    def check(self, minor):
        python = environments.pythons().get((3, minor))
        if python is None:
            self.skipTest(f"there is no python3.{minor} with venv")
        environment = environments.Environment(python)
        for test in ("data_test", "cluster_test"):
            environment.python(
                f"python/tests/{test}.py", cwd=ROOT,
                env={"HOLDFAST_PS_SERVER": f"{environment.folder}/bin/ps_server"},
            )

    def test_python_3_10(self):
        self.check(10)

    def test_python_3_11(self):
        self.check(11)

    def test_python_3_12(self):
        self.check(12)

    def test_python_3_13(self):
        self.check(13)


if __name__ == "__main__":
    unittest.main()
