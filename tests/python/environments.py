# SPDX-License-Identifier: Apache-2.0

"""Environments with the wheel that is tested."""

import atexit
import functools
import glob
import os
import shutil
import subprocess
import tempfile

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
WHEEL = os.environ.get("HOLDFAST_WHEEL", "")
FRAMEWORKS = os.environ.get("HOLDFAST_FRAMEWORKS", "")
MXNET = os.environ.get("HOLDFAST_MXNET", "")
IPYTHON = os.environ.get("HOLDFAST_IPYTHON", "")
TOOLS = os.environ.get("HOLDFAST_TOOLS", "")
LIMIT = 300  # timeout of one command, in seconds


def run(*words, **options):
    """Runs a command, which must succeed, and returns its output."""
    limit = options.pop("limit", LIMIT)
    done = subprocess.run(
        words, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, check=False,
        stdin=subprocess.DEVNULL, timeout=limit, **options
    )
    if done.returncode != 0:
        raise AssertionError(f"{words} ended with {done.returncode}\n{done.stdout[-6000:]}")
    return done.stdout


class Environment:
    """A new virtual environment of a Python, with the wheel.

    beside: another environment, whose packages are also available.
    """

    def __init__(self, python, *requirements, beside=None):
        self.folder = tempfile.mkdtemp(prefix="holdfast-venv-")
        atexit.register(shutil.rmtree, self.folder, ignore_errors=True)
        # With another environment, its pip and setuptools are used here, too.
        own_pip = ["--without-pip"] if beside is not None else []
        run(python, "-m", "venv", *own_pip, self.folder)
        [site] = glob.glob(f"{self.folder}/lib/python3*/site-packages")
        if beside is not None:
            [packages] = glob.glob(f"{beside}/lib/python3*/site-packages")
            with open(f"{site}/beside.pth", "w", encoding="utf-8") as file:
                file.write(packages + "\n")
        self.python("-m", "pip", "install", "--quiet", "--disable-pip-version-check",
                    WHEEL, *requirements)

    def run(self, name, *arguments, **options):
        """Runs a program of the environment, and returns its output."""
        environment = {
            **os.environ,
            "PATH": f"{self.folder}/bin:{os.environ['PATH']}",
            "PYTHONDONTWRITEBYTECODE": "1",
        }
        for variable in ("TF_CONFIG", "HOLDFAST_LIBRARY", "PYTHONPATH"):
            environment.pop(variable, None)
        environment.update(options.pop("env", {}))
        return run(f"{self.folder}/bin/{name}", *arguments, env=environment, **options)

    def python(self, *arguments, **options):
        return self.run("python", *arguments, **options)


@functools.lru_cache(maxsize=None)
def with_frameworks():
    return Environment("/usr/bin/python3", beside=FRAMEWORKS)


@functools.lru_cache(maxsize=None)
def with_ipython():
    return Environment("/usr/bin/python3", beside=IPYTHON)


@functools.lru_cache(maxsize=None)
def with_mxnet():
    """An environment with MXNet and the oldest NumPy that the wheel allows."""
    return Environment("/usr/bin/python3", beside=MXNET)


@functools.lru_cache(maxsize=None)
def pythons():
    """The installed interpreters from 3.10 on, keyed by version: {(3, 12): path}."""
    found = {}
    places = os.environ["PATH"].split(":") + ["/usr/bin", *glob.glob("/usr/local/bin")]
    places += glob.glob(os.path.expanduser("~/.pyenv/versions/3.*/bin"))
    for place in places:
        for minor in range(10, 20):
            path = os.path.join(place, f"python3.{minor}")
            works = (3, minor) not in found and os.access(path, os.X_OK) and subprocess.run(
                [path, "-c", "import ctypes, ensurepip, venv"], check=False,
                stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
            ).returncode == 0
            if works:
                found[3, minor] = path
    return found
