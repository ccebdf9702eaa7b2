# SPDX-License-Identifier: Apache-2.0

"""The package of deploy/debian, installed on a bare Debian, its daemons started as its units say.

There is no systemd in the tests' environment: the units are verified by systemd-analyze, and what
they start is started by this test, as their user and with their words."""

import json
import os
import re
import shlex
import shutil
import socket
import subprocess
import tempfile
import unittest

import debian
import manifests

_PROGRAMS = os.environ.get("HOLDFAST_PROGRAMS", "")
_JOB = """
name: "package"
data { train { csv { files: "/etc/holdfast/xor.csv"
  columns { name: "a" name: "b" number {} } columns { name: "y" label {} } } } }
model { sequential {
  layers { dense { units: 2 } } loss { softmax_cross_entropy {} } } }
optimizer { learning_rate: 0.1 sgd {} }
batch_size: 2
steps: 10
"""


def _why_not():
    if not os.path.exists(os.path.join(_PROGRAMS, "ps_server")):
        return "HOLDFAST_PROGRAMS does not name the folder of the programs"
    return debian.why_not()


def command_of(unit, index):
    """The words that systemd would start for an instance of a unit's text, and its environment."""
    values = dict(re.findall(r"^(\w+)=(.*)$", unit, re.M))
    environment = dict(
        line.split("=", 1) for line in re.findall(r"^Environment=(.*)$", unit, re.M)
    )
    words = []
    for word in values["ExecStart"].replace("%i", str(index)).split():
        if re.fullmatch(r"\$\w+", word):  # split at spaces, and left out where it is not set
            words += environment.get(word[1:], "").split()
        else:
            words.append(re.sub(r"\$\{(\w+)\}", lambda name: environment[name.group(1)], word))
    return values["User"], words


def free_ports(count):
    listeners = [socket.create_server(("localhost", 0)) for _ in range(count)]
    ports = [listener.getsockname()[1] for listener in listeners]
    for listener in listeners:
        listener.close()
    return ports


@unittest.skipIf(_why_not(), str(_why_not()))
class PackageTest(unittest.TestCase):
    def setUp(self):
        self.folder = tempfile.mkdtemp(prefix="holdfast-package-")
        self.addCleanup(shutil.rmtree, self.folder)
        self.root = os.path.join(self.folder, "debian")

    def build(self):
        said = debian.run(
            f"{manifests.ROOT}/deploy/debian/build.sh", f"--out={self.folder}",
            f"--programs={_PROGRAMS}",
        )
        return said.splitlines()[-1]

    def inside(self, command, user="root"):
        """Runs a command on the system, with /proc and /dev, and returns what it says."""
        return debian.run(
            "unshare", "--mount", "--propagation", "private", "/bin/bash", "-ec",
            f"""mount --rbind /dev {self.root}/dev
            mount -t proc proc {self.root}/proc
            exec env --ignore-environment PATH=/usr/sbin:/usr/bin:/sbin:/bin LC_ALL=C.UTF-8 \
              DEBIAN_FRONTEND=noninteractive \
              chroot --userspec={user} {self.root} /bin/bash -ec {shlex.quote(command)}""",
        )

    def write(self, path, text):
        with open(f"{self.root}{path}", "w", encoding="utf-8") as file:
            file.write(text)

    def test_installs_and_trains(self):
        package = self.build()
        debian.bootstrap(self.root)
        shutil.copy(package, f"{self.root}/holdfast.deb")
        self.inside("apt-get -qq update && apt-get -qq install -y --no-install-recommends /holdfast.deb")

        self.assertIn("holdfast ", self.inside("holdfast --version"))
        self.assertEqual(self.inside("id -un holdfast"), "holdfast")
        self.inside("systemd-analyze verify holdfast-ps@0.service holdfast-worker@0.service")
        self.assertIn("_holdfast", self.inside("cat /usr/share/bash-completion/completions/holdfast"))

        ports = free_ports(2)
        cluster = {"ps": [f"localhost:{ports[0]}"], "worker": [f"localhost:{ports[1]}"]}
        self.write("/etc/holdfast/cluster.json", json.dumps(cluster))
        self.write("/etc/holdfast/job.textproto", _JOB)
        self.write("/etc/holdfast/xor.csv", "a,b,y\n0,0,0\n0,1,1\n1,0,1\n1,1,0\n")
        self.write("/etc/hosts", "127.0.0.1 localhost\n")  # written by Debian's installer
        # StateDirectory of the units.
        self.inside("install -d -o holdfast -g holdfast -m 755 /var/lib/holdfast")
        commands = []
        for role in ("ps", "worker"):
            unit = self.inside(f"cat /usr/lib/systemd/system/holdfast-{role}@.service")
            user, words = command_of(unit, 0)
            self.assertEqual(user, "holdfast")
            commands.append(shlex.join(words))
        self.inside(
            f"cd /var/lib/holdfast; {commands[0]} & {commands[1]}; wait %1", user="holdfast:holdfast"
        )
        result = json.loads(self.inside("cat /var/lib/holdfast/result.json"))
        self.assertEqual(result["global_step"], 10)
        self.assertIn("step00000010", self.inside("ls /var/lib/holdfast/checkpoints"))

        # What was learned, and what was configured, outlives the package.
        self.inside("apt-get -qq remove -y holdfast")
        self.assertEqual(self.inside("command -v ps_server || echo gone"), "gone")
        self.assertIn("JOURNAL", self.inside("ls /var/lib/holdfast/checkpoints"))
        self.assertIn("cluster.json", self.inside("ls /etc/holdfast"))

    def test_same_programs_make_the_same_package(self):
        with open(self.build(), "rb") as first:
            before = first.read()
        with open(self.build(), "rb") as second:
            self.assertEqual(second.read(), before)

    def test_says_what_is_wrong(self):
        done = subprocess.run(
            [f"{manifests.ROOT}/deploy/debian/build.sh", "--programs=/"],
            capture_output=True, text=True, check=False,
        )
        self.assertEqual(done.returncode, 2)
        self.assertIn("deploy/debian/build.sh --out=FOLDER", done.stderr)


if __name__ == "__main__":
    unittest.main()
