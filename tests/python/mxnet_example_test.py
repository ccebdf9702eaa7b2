# SPDX-License-Identifier: Apache-2.0

"""examples/mxnet: the arithmetic of the kvstore, and a network that is trained with it."""

import os
import re
import tempfile
import unittest

import environments
from environments import ROOT

# The assertion of MXNet's own test of dist_sync (tests/nightly/dist_sync_kvstore.py of release
# 1.9.1, test_sync_push_pull): keys are initially ones, and each worker pushes rank + 1, 7 times;
# the servers' optimizer adds the sum of the pushes times its rescale_grad, which is 2. After push
# i the value is (n + 1) n 2 / 2 (i + 1) + 1 with n workers. Holdfast's rules subtract what MXNet's
# test optimizer adds, so the ones are negative here.
DIST_SYNC = """
import mxnet as mx
import holdfast
import holdfast_kvstore

RATE = 2
SHAPES = {"3": (2, 3), "5": (2, 3), "7": (2, 3), "99": (1200, 1200)}
params = mx.gluon.ParameterDict()
for name, shape in SHAPES.items():
    params.get(name, shape=shape, init="ones")
params.initialize()
store = mx.kv.create("holdfast")
n = store.num_workers
assert n == 4 and store.type == "holdfast"
optimizer = mx.optimizer.create("sgd", learning_rate=1.0, rescale_grad=RATE)
store.declare(params, optimizer, steps=7,
              consistency=holdfast.Synchronous(aggregation="sum"))
for i, _ in enumerate(store.batches()):
    for key, (param, shape) in enumerate(zip(params.values(), SHAPES.values())):
        store.pushpull(key, mx.nd.ones(shape) * -(store.rank + 1), out=param.list_data())
    for param in params.values():
        assert (param.data() == (n + 1) * n * RATE / 2 * (i + 1) + 1).asnumpy().all(), i
if store.rank == 0:
    # 10 x 2 x 7 + 1
    print("last value", params["3"].data().asnumpy()[0, 0])
"""

REFUSALS = """
import mxnet as mx
from mxnet import gluon
import holdfast
from holdfast_kvstore import rule_of

def message_of(error, function, *arguments):
    try:
        function(*arguments)
    except error as caught:
        return str(caught)
    raise AssertionError(f"no {error}")

create = mx.optimizer.create
assert rule_of(create("sgd", learning_rate=0.5, wd=0.1)) == holdfast.Sgd(
    learning_rate=0.5, weight_decay=0.1)
assert rule_of(create("sgd", learning_rate=0.5, momentum=0.9)) == holdfast.Momentum(
    learning_rate=0.5, momentum=0.9)
assert rule_of(create("adam")) == holdfast.Adam(
    learning_rate=0.001, beta1=0.9, beta2=0.999, epsilon=1e-8)
assert "no rule for NAG" in message_of(TypeError, rule_of, create("nag"))
schedule = mx.lr_scheduler.FactorScheduler(step=10)
assert "schedules" in message_of(ValueError, rule_of, create("sgd", lr_scheduler=schedule))
assert "clipping" in message_of(ValueError, rule_of, create("sgd", clip_gradient=1.0))

store = mx.kv.create("holdfast")
params = gluon.ParameterDict()
params.get("half", shape=1, dtype="float16")
params.initialize()
assert "half has dtype " in message_of(TypeError, store.declare, params, create("sgd"), 1)
params = gluon.ParameterDict()
params.get("w", shape=1)
params.initialize()
trainer = gluon.Trainer(params, create("sgd"), kvstore=store)
store.declare(params, trainer.optimizer, 1)
assert "is not the one" in message_of(ValueError, store.set_optimizer, create("sgd"))
for _ in store.batches():
    assert "key 1: " in message_of(ValueError, store.pushpull, 1, mx.nd.ones(1))
    store.pushpull(0, mx.nd.ones(1))
print("all refused")
"""


class MxnetExampleTest(unittest.TestCase):
    def run_local(self, script, *flags):
        """The output of worker 0 of `holdfast local`."""
        with tempfile.TemporaryDirectory() as folder:
            if not os.path.exists(script):
                path = f"{folder}/script.py"
                with open(path, "w", encoding="utf-8") as file:
                    file.write(script)
                script = path
            return environments.with_mxnet().run(
                "holdfast", "local", *flags, f"--run_dir={folder}/run", "--", "python", script,
                env={"PYTHONPATH": f"{ROOT}/examples/mxnet"},
            )

    def test_sums_are_those_of_dist_sync(self):
        self.assertIn("last value 141.0\n", self.run_local(DIST_SYNC, "--ps=2", "--workers=4"))

    def test_what_has_no_rule_is_refused(self):
        self.assertIn("all refused\n", self.run_local(REFUSALS, "--ps=1", "--workers=1"))

    def test_gluon_learns_the_same_on_any_number_of_ps(self):
        digests = set()
        for num_ps in (1, 2):
            said = self.run_local(
                f"{ROOT}/examples/mxnet/mnist.py", f"--ps={num_ps}", "--workers=2"
            )
            [accuracy] = re.findall(r"^accuracy (0\.\d{4}) on 1000 images$", said, re.M)
            # Guessing gets a tenth right.
            self.assertGreater(float(accuracy), 0.95)
            digests.update(re.findall(r"^digest ([0-9a-f]{64})$", said, re.M))
        self.assertEqual(len(digests), 1)

    def test_the_package_works_with_its_numpy(self):
        environment = environments.with_mxnet()
        self.assertIn("1.23.5", environment.python("-c", "import numpy; print(numpy.__version__)"))
        for test in ("data_test", "cluster_test"):
            environment.python(
                f"{ROOT}/python/tests/{test}.py",
                env={"HOLDFAST_PS_SERVER": f"{environment.folder}/bin/ps_server"},
            )


if __name__ == "__main__":
    unittest.main()
