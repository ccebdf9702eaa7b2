# SPDX-License-Identifier: Apache-2.0

"""Workers in Python against real ps daemons: see python_worker.py.

Arguments: the generated stubs' folder, and the paths of the ps daemon, the worker and
the command.
"""

import json
import os
import random
import re
import socket
import struct
import subprocess
import sys
import tempfile
import time
import unittest

import grpc

STUBS, PS_SERVER, WORKER, HOLDFAST = sys.argv[1:5]
sys.path[:0] = [STUBS, os.path.dirname(WORKER)]

import python_worker  # noqa: E402  (needs the stubs)
from proto import coordinator_pb2, coordinator_pb2_grpc  # noqa: E402


def unused_addresses(count):
    """Unused addresses on a loopback IP private to this process, apart from other tests' ports."""
    host = "127.%d.%d.%d" % tuple(random.SystemRandom().randrange(1, 255) for _ in range(3))
    sockets = []
    for _ in range(count):
        one = socket.socket()
        one.bind((host, 0))
        sockets.append(one)
    addresses = ["%s:%d" % one.getsockname() for one in sockets]
    for one in sockets:
        one.close()
    return addresses


def float32(value):
    return struct.unpack("f", struct.pack("f", value))[0]


def await_durable_step(address, step):
    """Waits until the job with its coordinator at `address` has `step` durable steps."""
    with grpc.insecure_channel(address, python_worker.OPTIONS) as channel:
        coordinator = coordinator_pb2_grpc.CoordinatorStub(channel)
        give_up = time.monotonic() + 40
        while True:
            try:
                status = coordinator.GetStatus(coordinator_pb2.GetStatusRequest(), timeout=5,
                                               wait_for_ready=True)
                if status.durable_step >= step:
                    return
                why = "%d steps are durable" % status.durable_step
            except grpc.RpcError as error:
                why = error.details()  # it is starting
            if time.monotonic() > give_up:
                raise TimeoutError("waiting for %d durable steps: %s" % (step, why))
            time.sleep(0.005)


class PythonWorkerTest(unittest.TestCase):

    def run_job(self, num_workers, *flags, num_ps=2, tls="", checkpoints="", kills=()):
        """Runs a job to its end, where every daemon must exit with 0. Returns the workers' JSON.

        kills: (step, ps) in ascending order: when `step` steps are durable, the ps is
        killed and started again.
        """
        ps = unused_addresses(num_ps)
        workers = ["127.0.0.1:%d" % (1 + i) for i in range(num_workers)]
        if tls:
            subprocess.run([HOLDFAST, "certs", "--out=" + tls, "--training=python",
                            "--cluster_spec=" + json.dumps({"ps": ps, "worker": workers})],
                           check=True, stdout=subprocess.DEVNULL)

        def tls_flags(task, *more):
            return ["--tls_dir=%s/%s" % (tls, task), *more] if tls else []

        # The logs of each ps, over all its lives. Files, because pipes are not read while the job
        # runs.
        logs = [tempfile.TemporaryFile() for _ in range(num_ps)]

        def start_ps(i):
            return subprocess.Popen(
                [PS_SERVER, "--task_index=%d" % i, "--ps_hosts=" + ",".join(ps),
                 "--worker_hosts=" + ",".join(workers), *tls_flags("ps-%d" % i),
                 *(["--checkpoint_dir=" + checkpoints, "--lease=2s"] if checkpoints else [])],
                stdout=logs[i], stderr=subprocess.STDOUT)

        daemons = [start_ps(i) for i in range(num_ps)]
        clients = [
            subprocess.Popen([sys.executable, WORKER, "--ps_hosts=" + ",".join(ps),
                              "--num_workers=%d" % num_workers, "--task_index=%d" % i, *flags,
                              *tls_flags("worker-%d" % i, "--training=python")],
                             stdout=subprocess.PIPE, env={**os.environ, "PYTHONPATH": STUBS})
            for i in range(num_workers)
        ]
        try:
            for step, i in kills:
                await_durable_step(ps[0], step)
                daemons[i].kill()
                daemons[i].wait()
                daemons[i] = start_ps(i)
            results = [client.communicate(timeout=50)[0] for client in clients]
            for daemon in daemons:
                daemon.wait(timeout=20)
        finally:
            for process in daemons + clients:
                process.kill()
        for process, log in zip(daemons, logs):
            log.seek(0)
            self.assertEqual(process.returncode, 0, log.read().decode())
            log.close()
        for client in clients:
            self.assertEqual(client.returncode, 0)
        return [json.loads(result) for result in results]

    def test_the_docs_tell_the_version(self):
        with open("docs/operating/compatibility.md", encoding="utf-8") as docs:
            told = re.search(r"^\| the protocol between tasks .* (\d+) \|$", docs.read(), re.M)
        self.assertEqual(int(told[1]), python_worker.PROTOCOL_VERSION)

    def test_synchronous(self):
        steps = 12
        results = self.run_job(2, "--mode=synchronous", "--pushes=%d" % steps)
        # The same steps, in Python's doubles: the mean of both workers' gradients.
        w = [0.0] * 15
        for step in range(steps):
            both = [python_worker.gradients({"w": w}, step * 2 + i)[0]["w"] for i in range(2)]
            w = [value - 0.1 * (a + b) / 2 for value, a, b in zip(w, *both)]
        for result in results:
            self.assertEqual(result["accepted"], steps)
            self.assertEqual(result["stale"], 0)
            self.assertEqual(result["versions"], [steps, steps])
            # Each step is the mean of ones.
            self.assertEqual(result["values"]["count"], [steps] * 4)
            for got, expected in zip(result["values"]["w"], w):
                self.assertAlmostEqual(got, expected, places=5)
        self.assertEqual(results[0]["values"], results[1]["values"])

    def test_one_call_does_the_same_as_several(self):
        for mode, num_workers in (("synchronous", 2), ("asynchronous", 1)):
            flags = ["--mode=" + mode, "--pushes=12"]
            several = self.run_job(num_workers, *flags, num_ps=1)
            one = self.run_job(num_workers, *flags, "--push_pull", num_ps=1)
            self.assertEqual(sum(result["accepted"] for result in one), 12 * num_workers)
            self.assertEqual(one[0]["versions"], [12])
            # To the last bit.
            self.assertEqual(one, several)

    def test_with_certificates(self):
        flags = ["--mode=synchronous", "--pushes=12"]
        with tempfile.TemporaryDirectory() as tls:
            # Encryption changes no bit.
            self.assertEqual(self.run_job(2, *flags, tls=tls), self.run_job(2, *flags))

    def test_goes_on_when_a_ps_dies(self):
        # First another ps, then the one with the coordinator, which forgets all sessions.
        flags = ["--mode=synchronous", "--pushes=60"]
        with tempfile.TemporaryDirectory() as checkpoints:
            results = self.run_job(2, *flags, "--pause=0.03", checkpoints=checkpoints,
                                   kills=[(5, 1), (20, 0)])
        for result in results:
            self.assertEqual(result["versions"], [60, 60])
            # Each step counts once.
            self.assertEqual(result["values"]["count"], [60] * 4)
        # To the last bit.
        for result in self.run_job(2, *flags):
            self.assertEqual(result["values"], results[0]["values"])

    def test_goes_on_when_a_ps_dies_asynchronously(self):
        flags = ["--mode=asynchronous", "--pushes=120", "--pause=0.03"]
        with tempfile.TemporaryDirectory() as checkpoints:
            results = self.run_job(2, *flags, checkpoints=checkpoints,
                                   kills=[(10, 1), (40, 0)])
        for result in results:
            self.assertEqual(result["versions"], [120, 120])
            self.assertEqual(result["values"]["count"], [120] * 4)

    def check_asynchronous(self, num_workers, pushes, *flags):
        results = self.run_job(num_workers, "--mode=asynchronous", "--pushes=%d" % pushes, *flags)
        self.assertEqual(sum(result["accepted"] for result in results), pushes)
        for result in results:
            # Every accepted push counts once, on both ps.
            self.assertEqual(result["versions"], [pushes, pushes])
            self.assertEqual(result["values"]["count"], [pushes] * 4)
            self.assertEqual(result["values"], results[0]["values"])
        return results

    def test_asynchronous(self):
        results = self.check_asynchronous(4, 60)
        # The model has learned: the loss on fresh examples is well below that of zeros.
        fresh = 1000
        learned = python_worker.gradients(results[0]["values"], fresh)[1]
        self.assertLess(learned, python_worker.gradients({"w": [0.0] * 15}, fresh)[1] / 2)

    def test_one_asynchronous_worker_is_plain_sgd(self):
        results = self.check_asynchronous(1, 10)
        self.assertEqual(results[0]["staleness"], [0] * 10)
        w = [0.0] * 15
        for index in range(10):
            gradient = python_worker.gradients({"w": w}, index)[0]["w"]
            w = [float32(value - 0.1 * g) for value, g in zip(w, gradient)]
        for got, expected in zip(results[0]["values"]["w"], w):
            self.assertAlmostEqual(got, expected, places=5)

    def test_bounded(self):
        # With bound 0, no worker begins push k + 1 before all workers have finished push k: between
        # a pull and its push, each other worker comes in at most once.
        for result in self.check_asynchronous(3, 40, "--staleness_bound=0"):
            self.assertLessEqual(max(result["staleness"], default=0), 2)


if __name__ == "__main__":
    unittest.main(argv=sys.argv[:1] + sys.argv[5:])
