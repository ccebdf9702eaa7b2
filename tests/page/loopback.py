# SPDX-License-Identifier: Apache-2.0

"""The daemons of one job as processes on this machine, each started and stopped separately."""

import json
import os
import re
import socket
import subprocess
import time
import urllib.request

ROOT = os.path.abspath(os.path.join(os.path.dirname(__file__), "..", ".."))
BIN = f"{ROOT}/bazel-bin"
HOLDFAST = f"{BIN}/cli/holdfast"
# The timeout of each wait, far longer than needed.
PATIENCE_SECONDS = 60


def free_ports(count):
    sockets = [socket.socket() for _ in range(count)]
    for each in sockets:
        each.bind(("127.0.0.1", 0))
    ports = [each.getsockname()[1] for each in sockets]
    for each in sockets:
        each.close()
    return ports


def job_text(example, **fields):
    """The job file of an example, for any number of tasks, with other values of top-level fields."""
    with open(f"{ROOT}/examples/{example}.textproto", encoding="utf-8") as file:
        text = re.sub(r"(?m)^local .*\n", "", file.read())
    for name, value in fields.items():
        text = re.sub(rf"(?m)^{name}(:? ).*\n", "", text)
        text += f"{name}{value}\n"
    return text


class Loopback:
    """`flags` and `environment` are those of single tasks, keyed by name ("ps-1")."""

    def __init__(self, folder, job, ps=2, workers=2, worker="worker/ps_worker", ps_flags=(), worker_flags=(),
                 flags=None, environment=None, checkpoint_dir=None):
        self.folder = folder
        path = f"{folder}/job.textproto"
        with open(path, "w", encoding="utf-8") as file:
            file.write(job)
        ports = free_ports(ps + workers + 1)
        addresses = [f"127.0.0.1:{port}" for port in ports]
        hosts = [f"--ps_hosts={','.join(addresses[:ps])}", f"--worker_hosts={','.join(addresses[ps:ps + workers])}"]
        self.ps0 = addresses[0]
        self.status_port = ports[-1]
        self.address = f"http://127.0.0.1:{self.status_port}/"
        self.result_path = f"{folder}/result.json"
        self.environment = environment or {}
        self.args = {}
        for i in range(ps):
            self.args[f"ps-{i}"] = [
                f"{BIN}/ps_server/ps_server", *hosts, f"--task_index={i}",
                f"--checkpoint_dir={checkpoint_dir or folder + '/checkpoints'}",
                f"--status_port={self.status_port if i == 0 else 0}", *ps_flags]
        for i in range(workers):
            self.args[f"worker-{i}"] = [
                f"{BIN}/{worker}", *hosts, f"--task_index={i}", f"--job={path}",
                f"--result_file={self.result_path}", *worker_flags]
        for name, more in (flags or {}).items():
            self.args[name].extend(more)
        self.processes = {}

    def start(self, *names):
        """Starts the tasks with these names; by default, all."""
        for name in names or self.args:
            with open(f"{self.folder}/{name}.log", "ab") as log:
                self.processes[name] = subprocess.Popen(
                    self.args[name], stdout=log, stderr=subprocess.STDOUT, cwd=ROOT,
                    env={**os.environ, **self.environment.get(name, {})})

    def signal(self, name, number):
        self.processes[name].send_signal(number)

    def end(self, name, timeout=PATIENCE_SECONDS):
        """Waits until a task has ended by itself, and returns its exit code."""
        return self.processes[name].wait(timeout)

    def close(self):
        for process in self.processes.values():
            if process.poll() is None:
                process.kill()
            process.wait()

    def log(self, name):
        with open(f"{self.folder}/{name}.log", encoding="utf-8") as file:
            return file.read()

    def get(self, path):
        with urllib.request.urlopen(self.address + path, timeout=10) as answer:
            return answer.read().decode()

    def status(self):
        """The status from the status port; None while it does not answer."""
        try:
            return json.loads(self.get("status.json"))
        except OSError:
            return None

    def wait(self, condition, what):
        """Waits until `condition` holds for the status, and returns the status."""
        deadline = time.monotonic() + PATIENCE_SECONDS
        while True:
            status = self.status()
            if status is not None and condition(status):
                return status
            if time.monotonic() > deadline:
                logs = "".join(f"---- {name}\n{self.log(name)[-2000:]}\n" for name in self.processes)
                raise AssertionError(f"the job does not reach {what}: {status}\n{logs}")
            time.sleep(0.02)

    def command(self, *words, timeout=PATIENCE_SECONDS):
        """The result of `holdfast` with these arguments."""
        return subprocess.run([HOLDFAST, *words, f"--ps={self.ps0}"], capture_output=True, text=True,
                              timeout=timeout, check=False)


def metrics_of(text):
    """The values in a text of metrics, keyed by series as written in the text."""
    found = {}
    for line in text.splitlines():
        if line and not line.startswith("#"):
            series, _, value = line.rpartition(" ")
            found[series] = float(value)
    return found
