# SPDX-License-Identifier: Apache-2.0

"""The images of deploy/docker, built on a Debian that debootstrap makes, and run once inside.

The images contain the programs that were built for the other tests; the stage that builds them,
and the variant with CUDA, are not tested."""

import json
import os
import re
import shutil
import tempfile
import unittest

import debian
import manifests

_PROGRAMS = os.environ.get("HOLDFAST_PROGRAMS", "")
_WHEEL = os.environ.get("HOLDFAST_WHEEL", "")
_UID = 10001
# As in the pods of deploy/k8s, everything except /tmp is read-only.
_TRAIN = "cd /tmp && holdfast local --job=/job/job.textproto --run_dir=/tmp/run --ps=1 --workers=1"


def _why_not():
    if not os.path.exists(os.path.join(_PROGRAMS, "tanh_worker")):
        return "HOLDFAST_PROGRAMS does not name the folder of the programs"
    return debian.why_not("buildah")


@unittest.skipIf(_why_not(), str(_why_not()))
class ImageTest(unittest.TestCase):
    def setUp(self):
        self.folder = tempfile.mkdtemp(prefix="holdfast-image-")
        self.addCleanup(shutil.rmtree, self.folder)

    def buildah(self, *words):
        return debian.run(
            "buildah", "--storage-driver", "vfs", "--root", f"{self.folder}/images", "--runroot",
            f"{self.folder}/run", *words
        )

    def make_base(self, *packages):
        """Makes a minimal image of Debian, with this machine's package source."""
        root = os.path.join(self.folder, "debian")
        debian.bootstrap(root, *packages)
        container = self.buildah("from", "scratch")
        self.buildah("add", "--quiet", container, root, "/")
        # Debian's pip refuses to change the system's Python; everything that it needs is in the
        # folder.
        self.buildah(
            "config", "--env", "PIP_BREAK_SYSTEM_PACKAGES=1", "--env", "PIP_NO_INDEX=1", container
        )
        self.buildah("commit", "--quiet", container, "holdfast-test-base")
        self.buildah("rm", container)
        shutil.rmtree(root)

    @unittest.skipUnless(_WHEEL, "HOLDFAST_WHEEL does not name the wheel")
    def test_wheel_trains_on_a_bare_debian(self):
        # Like python:3.11-slim: no compiler, and only Python's own libraries.
        self.make_base("python3", "python3-pip", "python-is-python3")
        context = os.path.join(self.folder, "context")
        os.makedirs(f"{context}/dist")
        shutil.copy(_WHEEL, f"{context}/dist")
        debian.run(
            "/usr/bin/python3", "-m", "pip", "download", "--quiet", "--no-deps",
            "--disable-pip-version-check", "--dest", f"{context}/dist", "numpy==2.2.6",
        )
        self.buildah(
            "build", "--isolation", "chroot", "--pull-never", "--build-arg",
            "BASE=localhost/holdfast-test-base", "--tag", "holdfast-python", "--file",
            f"{manifests.ROOT}/deploy/docker/python.Dockerfile", context,
        )
        container = self.buildah("from", "--pull-never", "localhost/holdfast-python")

        def inside(command):
            return self.buildah(
                "run", "--isolation", "chroot", "--volume", f"{manifests.K8S}/example:/job:ro",
                container, "--", "/bin/bash", "-ec", command
            )

        self.assertEqual(inside("id -u"), str(_UID))
        self.assertEqual(inside("command -v gcc g++ || echo none"), "none")
        self.assertIn("ps_server 0.", inside("ps_server --version"))
        said = inside("cd /tmp && python -m holdfast.examples.mnist --steps=100")
        self.assertRegex(said, r"\naccuracy 0\.[89]")
        # Runs the script of deploy/k8s/example as its pods do.
        said = inside("cd /tmp && holdfast local --ps=1 --workers=2 -- python /job/train.py")
        self.assertRegex(said, r"\naccuracy 0\.[89]")

    def build(self):
        context = os.path.join(self.folder, "context")
        shutil.copytree(
            os.path.join(manifests.ROOT, "deploy", "docker"), f"{context}/deploy/docker"
        )
        shutil.copytree(_PROGRAMS, f"{context}/programs")
        self.buildah(
            "build", "--isolation", "chroot", "--pull-never", "--build-arg",
            "BASE=localhost/holdfast-test-base", "--build-arg", "PROGRAMS=programs", "--tag",
            "holdfast", "--file", f"{context}/deploy/docker/Dockerfile", context
        )

    def test_builds_and_trains(self):
        self.make_base()
        self.build()
        container = self.buildah("from", "--pull-never", "localhost/holdfast")
        job = os.path.join(self.folder, "job")
        os.mkdir(job, 0o755)
        with open(f"{manifests.K8S}/example/job.textproto", encoding="utf-8") as file:
            example, shortened = re.subn(r"steps: 4000\b", "steps: 20", file.read())
        self.assertEqual(shortened, 2)  # the steps of the job, and of its schedule's decay
        with open(f"{job}/job.textproto", "w", encoding="utf-8") as file:
            file.write(example)

        def inside(command):
            return self.buildah(
                "run", "--isolation", "chroot", "--volume", f"{job}:/job:ro", container, "--",
                "/bin/bash", "-ec", command
            )

        self.assertEqual(inside("id -u"), str(_UID))
        self.assertNotIn("not found", inside("ldd /usr/local/bin/*"))
        result = json.loads(inside(f"{_TRAIN} >&2; cat run/result.json"))
        self.assertEqual(result["global_step"], 20)
        # The same, with everything except /tmp read-only. As in a container, the command does not
        # see this environment: OPENBLAS_CORETYPE would give another CPU's digest.
        root = self.buildah("mount", container)
        os.makedirs(f"{root}/job", exist_ok=True)
        again = debian.run(
            "unshare", "--mount", "--propagation", "private", "/bin/bash", "-ec",
            f"""mount --bind {root} {root}
            mount --bind {job} {root}/job
            mount -t tmpfs none {root}/tmp
            mount --rbind /dev {root}/dev
            mount -t proc proc {root}/proc
            mount -o remount,bind,ro {root}
            exec env --ignore-environment PATH="$PATH" \
              chroot --userspec={_UID}:{_UID} {root} /bin/bash -ec '
              if touch /usr/x /var/x /etc/x 2>&1; then exit 1; fi
              {_TRAIN} >&2; cat run/result.json'""",
        )
        self.assertEqual(json.loads(again[again.index("{") :])["digest"], result["digest"])
        self.trains_with_a_worker_of_ones_own()

    def trains_with_a_worker_of_ones_own(self):
        """Builds on the existing image, as docs/operating/README.md describes."""
        context = os.path.join(self.folder, "own")
        os.mkdir(context)
        shutil.copy(os.path.join(_PROGRAMS, "tanh_worker"), context)
        with open(f"{manifests.ROOT}/docs/operating/README.md", encoding="utf-8") as file:
            [dockerfile] = re.findall(r"^```dockerfile\n(.*?)^```", file.read(), re.S | re.M)
        dockerfile, based = re.subn(r"registry\.\S+", "localhost/holdfast", dockerfile)
        self.assertEqual(based, 1)
        with open(f"{context}/Dockerfile", "w", encoding="utf-8") as file:
            file.write(dockerfile)
        self.buildah(
            "build", "--isolation", "chroot", "--pull-never", "--tag", "holdfast-tanh", context
        )
        container = self.buildah("from", "--pull-never", "localhost/holdfast-tanh")
        job = os.path.join(self.folder, "own_job")
        os.mkdir(job, 0o755)
        path = f"{manifests.ROOT}/examples/custom_model/fashion_mnist_tanh.textproto"
        with open(path, encoding="utf-8") as file:
            example, shortened = re.subn(r"\nsteps: \d+", "\nsteps: 20", file.read())
        self.assertEqual(shortened, 1)
        with open(f"{job}/job.textproto", "w", encoding="utf-8") as file:
            file.write(example)
        told = self.buildah(
            "run", "--isolation", "chroot", "--volume", f"{job}:/job:ro", container, "--",
            "/bin/bash", "-ec", f"{_TRAIN} >&2; cat run/result.json",
        )
        self.assertEqual(json.loads(told)["global_step"], 20)


if __name__ == "__main__":
    unittest.main()
