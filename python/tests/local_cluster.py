# SPDX-License-Identifier: Apache-2.0

"""ps daemons and scripts on this machine, for tests."""

from __future__ import annotations

import contextlib
import json
import os
import random
import signal
import socket
import subprocess
import sys
import tempfile
import textwrap
import time
from collections.abc import Callable, Iterator
from typing import Any

import holdfast

PS_SERVER = os.environ.get("HOLDFAST_PS_SERVER", "ps_server/ps_server")


def unused_addresses(count: int) -> list[str]:
    """On a loopback address of this process' own, where other tests' ports are not."""
    octets = [random.SystemRandom().randrange(1, 255) for _ in range(3)]
    host = "127." + ".".join(map(str, octets))
    with contextlib.ExitStack() as stack:
        sockets = [stack.enter_context(socket.socket()) for _ in range(count)]
        for one in sockets:
            one.bind((host, 0))
        return ["{}:{}".format(*one.getsockname()) for one in sockets]


def await_that(condition: Callable[[], Any], what: str, seconds: float = 60.0) -> Any:
    """The first true result of ``condition``."""
    deadline = time.monotonic() + seconds
    while time.monotonic() < deadline:
        result = condition()
        if result:
            return result
        time.sleep(0.005)
    raise TimeoutError(f"waited {seconds} s for {what}")


class Script:
    """A Python script as one of the workers."""

    def __init__(self, text: str, environment: dict[str, str], folder: str, name: str):
        self.path = os.path.join(folder, name + ".py")
        with open(self.path, "w", encoding="utf-8") as file:
            file.write(textwrap.dedent(text))
        self._log = open(os.path.join(folder, name + ".log"), "w+", encoding="utf-8")  # noqa: SIM115
        self.process = subprocess.Popen(
            [sys.executable, "-u", self.path],
            env={**os.environ, **environment},
            stdout=self._log,
            stderr=subprocess.STDOUT,
        )

    @property
    def output(self) -> str:
        with open(self._log.name, encoding="utf-8") as file:
            return file.read()

    def await_output(self, text: str, seconds: float = 60.0) -> None:
        """Until it has printed ``text``."""

        def printed() -> bool:
            if text in self.output:
                return True
            if self.process.poll() is not None:
                raise AssertionError(f'ended without "{text}":\n{self.output}')
            return False

        await_that(printed, f'"{text}" in the output', seconds)

    def wait(self, seconds: float = 60.0) -> int:
        """The exit code; negative for a signal."""
        try:
            return self.process.wait(seconds)
        except subprocess.TimeoutExpired:
            raise AssertionError(f"still runs after {seconds} s:\n{self.output}") from None

    def result(self) -> Any:
        """The JSON in its last line, of a script that has to end well."""
        code = self.wait()
        if code != 0:
            raise AssertionError(f"exit code {code}:\n{self.output}")
        return json.loads(self.output.splitlines()[-1])

    def stop(self) -> None:
        self.process.kill()
        self.process.wait()
        self._log.close()


class LocalCluster:
    """``num_ps`` daemons, and the places of workers and evaluators."""

    def __init__(
        self,
        num_ps: int = 1,
        num_workers: int = 1,
        *,
        num_evaluators: int = 0,
        flags: tuple[str, ...] = (),
    ):
        self._folder = tempfile.TemporaryDirectory(prefix="holdfast")
        self.folder = self._folder.name
        self.checkpoints = os.path.join(self.folder, "checkpoints")
        self.spec = {
            "ps": unused_addresses(num_ps),
            "worker": [f"127.0.0.1:{i + 1}" for i in range(num_workers)],
        }
        if num_evaluators > 0:
            self.spec["evaluator"] = [f"127.0.0.2:{i + 1}" for i in range(num_evaluators)]
        self._flags = flags
        self._scripts: list[Script] = []
        self._lives = 0
        self.ps: list[subprocess.Popen[bytes]] = [self._start_ps(i) for i in range(num_ps)]

    def __enter__(self) -> LocalCluster:
        return self

    def __exit__(self, *_: object) -> None:
        for script in self._scripts:
            script.stop()
        for daemon in self.ps:
            daemon.kill()
            daemon.wait()
        self._folder.cleanup()

    def _start_ps(self, index: int) -> subprocess.Popen[bytes]:
        self._lives += 1
        with open(f"{self.folder}/ps-{index}-{self._lives}.log", "wb") as log:
            return subprocess.Popen(
                [
                    PS_SERVER,
                    f"--cluster_spec={json.dumps(self.spec)}",
                    f"--task_index={index}",
                    f"--checkpoint_dir={self.checkpoints}",
                    *self._flags,
                ],
                stdout=log,
                stderr=subprocess.STDOUT,
            )

    def start_again(self) -> None:
        """All of them, which have ended."""
        self.ps = [self._start_ps(i) for i in range(len(self.ps))]

    def kill_ps(self, index: int) -> None:
        """kill -9, and starts it again."""
        self.ps[index].kill()
        self.ps[index].wait()
        self.ps[index] = self._start_ps(index)

    def await_end(self, code: int = 0) -> None:
        """Until every ps has ended, with this exit code."""
        for daemon in self.ps:
            ended = daemon.wait(60)
            if ended != code:
                raise AssertionError(f"a ps has ended with {ended}, not {code}\n{self.logs()}")

    def status(self) -> holdfast.Status:
        with holdfast.connect(self.spec, job_name="client") as client:
            return client.status()

    def await_step(self, step: int) -> None:
        """Until so many steps, or pushes, are on disk."""
        await_that(lambda: self.status().durable_step >= step, f"{step} steps")

    def await_lost_worker(self) -> None:
        """Until the lease of a worker has run out."""

        def lost() -> bool:
            tasks = self.status().everything["tasks"]
            return any(t["task"]["job"] == "worker" and not t["alive"] for t in tasks)

        await_that(lost, "a lease to run out")

    def logs(self) -> str:
        text = []
        for name in sorted(os.listdir(self.folder)):
            if name.endswith(".log"):
                with open(os.path.join(self.folder, name), encoding="utf-8") as log:
                    text.append(f"--- {name}\n{log.read()}")
        return "\n".join(text)

    def task(self, index: int = 0) -> dict[str, Any]:
        """Arguments of holdfast.connect for a worker."""
        return {"cluster": self.spec, "job_name": "worker", "task_index": index}

    def run(
        self, text: str, index: int = 0, *, job_name: str = "worker", **environment: str
    ) -> Script:
        """Starts a script as a task, which finds its place in TF_CONFIG."""
        task = {"cluster": self.spec, "task": {"type": job_name, "index": index}}
        name = f"{job_name}-{index}-{len(self._scripts)}"
        script = Script(text, {"TF_CONFIG": json.dumps(task), **environment}, self.folder, name)
        self._scripts.append(script)
        return script


@contextlib.contextmanager
def interrupted_after(seconds: float, number: int = signal.SIGINT) -> Iterator[None]:
    """Sends this process a signal from another one."""
    process = subprocess.Popen(["/bin/sh", "-c", f"sleep {seconds}; kill -{number} {os.getpid()}"])
    try:
        yield
    finally:
        process.wait()
