# SPDX-License-Identifier: Apache-2.0

"""A cluster of processes, started as the rendered manifests specify and supervised as Kubernetes
or Kubeflow would: pods are killed and replaced at other addresses, and the result must be
right."""

import base64
import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
import unittest
import urllib.error
import urllib.request

import manifests
from pod_network import PodNetwork, why_no_pods

# The folder with ps_server, ps_worker and holdfast.
_PROGRAMS = os.environ.get("HOLDFAST_PROGRAMS", "")

_DATA = "/usr/share/datasets/fashion-mnist"
_JOB = f"""
name: "pods"
model {{
  sequential {{
    layers {{ flatten {{}} }}
    layers {{ name: "hidden" dense {{ units: 64 }} }}
    layers {{ relu {{}} }}
    layers {{ name: "logits" dense {{ units: 10 }} }}
    loss {{ softmax_cross_entropy {{}} }}
  }}
}}
data {{
  train {{
    idx {{
      images: "{_DATA}/train-images-idx3-ubyte.gz"
      labels: "{_DATA}/train-labels-idx1-ubyte.gz"
    }}
  }}
}}
batch_size: 300
steps: 1200
optimizer {{ learning_rate: 0.05 momentum {{ momentum: 0.9 }} }}
partitioner {{ fixed_shards {{ shards: 2 }} }}
checkpoints {{ every_steps: 50 }}
seed: 3
"""
_PATIENCE = 150  # seconds, for all waits together
_SIGKILLED = 128 + signal.SIGKILL
_RESTART = 138


def _why_not():
    if why := manifests.why_no_kubectl() or why_no_pods():
        return why
    if not os.path.exists(os.path.join(_PROGRAMS, "ps_worker")):
        return "HOLDFAST_PROGRAMS does not name the folder of the programs"
    return None


class _Running:
    """A pod and its current life."""

    def __init__(self, pod):
        self.pod = pod
        self.starts = 0
        self.process = None
        self.address = None
        self.ends = []  # exit codes; 128 + the signal's number


class _Cluster:
    """The pods of rendered manifests under their controllers. Used from one thread."""

    def __init__(self, objects, folder):
        self._folder = folder
        self._network = PodNetwork(folder, _PROGRAMS, objects[0]["metadata"]["namespace"])
        self.shared = os.path.join(folder, "shared")
        job = os.path.join(folder, "job")
        os.makedirs(self.shared)
        os.makedirs(job)
        for name, text in manifests.find(objects, "ConfigMap", "holdfast-job")["data"].items():
            with open(os.path.join(job, name), "w", encoding="utf-8") as file:
                file.write(text)
        tmp = os.path.join(folder, "tmp")
        os.makedirs(tmp)
        self._volumes = {"shared": self.shared, "job": job, "tmp": tmp}
        self._secrets = {o["metadata"]["name"]: o for o in objects if o["kind"] == "Secret"}
        self.pods = {pod.name: _Running(pod) for pod in manifests.pods(objects)}
        group = {pod.spec["securityContext"]["fsGroup"] for pod in manifests.pods(objects)}
        for path in (self.shared, tmp):
            # Kubernetes gives a volume to the fsGroup.
            os.chown(path, 0, *group)
            os.chmod(path, 0o2775)
        self._deadline = time.monotonic() + _PATIENCE

    def close(self):
        for running in self.pods.values():
            if running.process is not None:
                running.process.kill()
                running.process.wait()
        self._network.close()

    def log(self, name):
        with open(os.path.join(self._folder, f"{name}.log"), encoding="utf-8") as file:
            return file.read()

    def start(self, name):
        running = self.pods[name]
        running.starts += 1
        path = os.path.join(self._folder, f"{name}.log")
        mounts = dict(self._volumes)
        for volume in running.pod.spec["volumes"]:
            if "projected" in volume:
                mounts[volume["name"]] = self._project(volume, running.pod)
        with open(path, "a", encoding="utf-8") as log:
            running.process, running.address = self._network.start(running.pod, mounts, log)

    def _project(self, volume, pod):
        """Creates a folder with the files of Secrets, like a projected volume."""
        folder = tempfile.mkdtemp(dir=self._folder)
        for source in volume["projected"]["sources"]:
            secret = self._secrets[source["secret"]["name"]]
            for item in source["secret"]["items"]:
                path = os.path.join(folder, item["path"])
                os.makedirs(os.path.dirname(path), exist_ok=True)
                with open(path, "wb") as file:
                    file.write(base64.b64decode(secret["data"][item["key"]]))
                os.chown(path, 0, pod.spec["securityContext"]["fsGroup"])
                os.chmod(path, volume["projected"]["defaultMode"])
        os.chmod(folder, 0o755)
        return folder

    def probe(self, name, probe):
        """The HTTP status that a kubelet's probe gets; None if there is no answer or no probe."""
        running = self.pods[name]
        if probe not in running.pod.container or running.process is None:
            return None
        get = running.pod.container[probe]["httpGet"]
        [port] = [
            port["containerPort"]
            for port in running.pod.container["ports"]
            if port["name"] == get["port"]
        ]
        url = f"http://{running.address}:{port}{get['path']}"
        try:
            with urllib.request.urlopen(url, timeout=2) as answer:
                return answer.status
        except urllib.error.HTTPError as error:
            return error.code
        except OSError:
            return None

    def _supervise(self):
        for name, running in self.pods.items():
            if running.process is None or running.process.poll() is None:
                continue
            code = running.process.returncode
            code = 128 - code if code < 0 else code
            running.ends.append(code)
            running.process = None
            self._network.forget(running.pod)
            if code == 0:
                continue
            if running.pod.another_after(code) is None:
                raise AssertionError(f"{name} has given up the job with {code}\n{self.describe()}")
            self.start(name)

    def wait_until(self, done, what):
        while not done():
            self._supervise()
            if time.monotonic() > self._deadline:
                raise AssertionError(f"timed out waiting until {what}\n{self.describe()}")
            time.sleep(0.02)

    def describe(self):
        return "\n".join(
            f"---- {name}, started {running.starts} times, ends {running.ends}\n"
            + "\n".join(self.log(name).splitlines()[-15:])
            for name, running in self.pods.items()
            if running.starts
        )

    def checkpoints(self):
        path = os.path.join(self.shared, "checkpoints")
        if not os.path.isdir(path):
            return 0
        steps = [int(name.split("-step")[1]) for name in os.listdir(path) if "-step" in name]
        return max(steps, default=0)

    def kill(self, names, number):
        """Kills pods, all at once, and waits until others have replaced them and there is a later
        checkpoint. Returns the seconds until the pods had ended, and from then until the
        checkpoint."""
        started = time.monotonic()
        before = {name: len(self.pods[name].ends) for name in names}
        for name in names:
            self.pods[name].process.send_signal(number)
        self.wait_until(
            lambda: all(len(self.pods[name].ends) > before[name] for name in names),
            f"{', '.join(names)} have ended",
        )
        ended = time.monotonic()
        step = self.checkpoints()
        self.wait_until(lambda: self.checkpoints() > step, "training goes on")
        took, back = ended - started, time.monotonic() - ended
        print(
            f"{', '.join(names)}: signal {number}, ended after {took:.1f} s, "
            f"next checkpoint {back:.1f} s later"
        )
        return took, back


@unittest.skipIf(_why_not(), str(_why_not()))
class ClusterTest(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        # The digest of an undisturbed run, with plain daemons and a different number of ps.
        with tempfile.TemporaryDirectory() as folder:
            job = os.path.join(folder, "job.textproto")
            with open(job, "w", encoding="utf-8") as file:
                file.write(_JOB)
            run = os.path.join(folder, "run")
            # Like the pods, the run must not see this environment: OPENBLAS_CORETYPE, for example,
            # would give the digest of another CPU's code.
            subprocess.run(
                [os.path.join(_PROGRAMS, "holdfast"), "local", f"--job={job}", "--ps=1",
                 "--workers=2", f"--run_dir={run}"],
                check=True, capture_output=True, text=True, env={"PATH": os.environ["PATH"]},
            )
            with open(os.path.join(run, "result.json"), encoding="utf-8") as file:
                cls.digest = json.load(file)["digest"]

    def cluster(self, variant, job=_JOB, tls=None):
        folder = tempfile.mkdtemp(prefix="holdfast-pods-")
        os.chmod(folder, 0o755)
        self.addCleanup(shutil.rmtree, folder)
        cluster = _Cluster(manifests.render(variant, 2, 2, job, tls, _PROGRAMS), folder)
        self.addCleanup(cluster.close)
        return cluster

    def expect_end(self, cluster):
        cluster.wait_until(
            lambda: all(r.process is None and r.ends for r in cluster.pods.values()), "all is over"
        )
        for name, running in cluster.pods.items():
            self.assertEqual(running.ends[-1], 0, name)
        with open(os.path.join(cluster.shared, "result.json"), encoding="utf-8") as file:
            self.assertEqual(json.load(file)["digest"], self.digest)

    def test_indexed_jobs_with_tls(self):
        cluster = self.cluster("overlays/cpu", tls=[])
        self.assertTrue(
            all(any("--tls_dir=" in arg for arg in r.pod.argv()) for r in cluster.pods.values())
        )
        # A ps without the other tasks is alive, but not ready.
        cluster.start("holdfast-ps-1")
        cluster.wait_until(
            lambda: cluster.probe("holdfast-ps-1", "livenessProbe") == 200, "ps 1 lives"
        )
        self.assertEqual(cluster.probe("holdfast-ps-1", "readinessProbe"), 503)
        for name in cluster.pods:
            if name != "holdfast-ps-1":
                cluster.start(name)
        cluster.wait_until(
            lambda: all(cluster.probe(n, "readinessProbe") == 200 for n in cluster.pods),
            "all are ready",
        )
        self.assertTrue(all(cluster.probe(n, "livenessProbe") == 200 for n in cluster.pods))

        # A machine is lost.
        cluster.wait_until(lambda: cluster.checkpoints() >= 100, "there is a checkpoint")
        cluster.kill(["holdfast-ps-1"], signal.SIGKILL)
        # Two pods are evicted.
        took, _ = cluster.kill(["holdfast-worker-1", "holdfast-ps-0"], signal.SIGTERM)
        grace = cluster.pods["holdfast-worker-1"].pod.spec["terminationGracePeriodSeconds"]
        self.assertLess(took, grace)
        self.expect_end(cluster)
        ends = {name: running.ends for name, running in cluster.pods.items()}
        self.assertEqual(ends["holdfast-ps-1"][0], _SIGKILLED)
        self.assertEqual(ends["holdfast-ps-0"][0], _RESTART)
        self.assertEqual(ends["holdfast-worker-1"][0], _RESTART)

    def test_tf_job(self):
        cluster = self.cluster("tfjob")
        for name in cluster.pods:
            cluster.start(name)
        cluster.wait_until(lambda: cluster.checkpoints() >= 100, "there is a checkpoint")
        self.assertTrue(all(cluster.probe(n, "livenessProbe") == 200 for n in cluster.pods))
        # There is no lease to wait for, but the name of ps 0 must be resolved again: gRPC does so
        # at most every 30 s.
        _, back = cluster.kill(["holdfast-ps-0"], signal.SIGKILL)
        self.assertLess(back, 20)
        # All pods are told to end: they save a checkpoint first.
        took, _ = cluster.kill(list(cluster.pods), signal.SIGTERM)
        self.assertLess(took, 15)
        self.expect_end(cluster)
        for name, running in cluster.pods.items():
            self.assertIn(_RESTART, running.ends, name)

    def test_a_stopped_job_goes_on_when_it_is_started_again(self):
        cluster = self.cluster("overlays/cpu")
        for name in cluster.pods:
            cluster.start(name)
        cluster.wait_until(lambda: cluster.checkpoints() >= 100, "there is a checkpoint")
        stop = subprocess.run(
            [os.path.join(_PROGRAMS, "holdfast"), "stop",
             f"--ps={cluster.pods['holdfast-ps-0'].address}:2222"],
            capture_output=True, text=True, timeout=60,
        )
        self.assertEqual(stop.returncode, 0, stop.stderr)
        self.assertRegex(stop.stdout, "^The job was stopped at step [1-9][0-9]* of 1200; ")
        # Every pod is complete, which ends its Kubernetes Job.
        cluster.wait_until(lambda: all(r.ends for r in cluster.pods.values()), "all have ended")
        for name, running in cluster.pods.items():
            self.assertEqual(running.ends, [0], name)
        self.assertFalse(os.path.exists(os.path.join(cluster.shared, "result.json")))
        for name in cluster.pods:
            cluster.start(name)
        self.expect_end(cluster)

    def test_a_wrong_job_is_final(self):
        cluster = self.cluster("overlays/cpu", job="nonsense { }")
        cluster.start("holdfast-worker-0")
        with self.assertRaisesRegex(AssertionError, "given up the job with 2"):
            self.expect_end(cluster)


if __name__ == "__main__":
    sys.exit(unittest.main())
