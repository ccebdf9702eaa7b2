# SPDX-License-Identifier: Apache-2.0

"""Pods on this machine, each with its own network, file system and user."""

import os
import shlex
import shutil
import subprocess
import tempfile

from name_server import NameServer


def why_no_pods():
    """Why no pods can run here; None if they can."""
    if os.geteuid() != 0:
        return "network namespaces need root"
    for program in ("ip", "unshare", "chroot"):
        if shutil.which(program) is None:
            return f"{program} is not installed"
    probe = f"hfpod{os.getpid()}"
    made = subprocess.run(
        ["ip", "netns", "add", probe], capture_output=True, text=True, check=False
    )
    subprocess.run(["ip", "netns", "del", probe], capture_output=True, check=False)
    return made.stderr.strip() or None


def _ip(*words):
    subprocess.run(["ip", *words], check=True, capture_output=True, text=True)


class PodNetwork:
    """A node: a bridge with pods on it. This process is connected to the bridge, too, like a
    kubelet.

    Its DNS resolves a pod's names from the pod's start until its end.
    """

    def __init__(self, folder, programs, namespace):
        """`folder` belongs to the caller; `programs` is a folder with the programs, on the pods'
        PATH; `namespace` is the Kubernetes namespace, in which names may be abbreviated to their
        first parts."""
        self._folder = folder
        self._programs = programs
        self._namespace = namespace
        self._spaces = []
        self._last = 1
        self._bridge = None
        self._names = None
        # Finds a number that no other network on this machine has.
        for attempt in range(100):
            number = (os.getpid() + attempt) % 190 + 1
            if subprocess.run(
                # A fixed hardware address: otherwise a bridge changes its address with its ports.
                ["ip", "link", "add", f"hfpod{number}", "address", f"02:00:00:00:00:{number:02x}",
                 "type", "bridge"],
                capture_output=True,
                check=False,
            ).returncode == 0:
                break
        else:
            raise RuntimeError("no bridge can be made")
        self._number = number
        self._node = f"10.192.{number}.1/24"
        self._bridge = f"hfpod{number}"
        _ip("address", "add", self._node, "dev", self._bridge)
        _ip("link", "set", self._bridge, "up")
        self._names = NameServer(self._node.split("/")[0])

    def close(self):
        if self._names is not None:
            self._names.close()
        for space in self._spaces:
            subprocess.run(["ip", "netns", "del", space], capture_output=True, check=False)
        if self._bridge is not None:
            subprocess.run(["ip", "link", "del", self._bridge], capture_output=True, check=False)

    def _tell(self, pod, address):
        for host in pod.hosts:
            service = host if host.endswith(".svc") else f"{host}.{self._namespace}.svc"
            self._names.set(f"{service}.cluster.local", address)

    def start(self, pod, mounts, log):
        """Starts a pod at an address that no pod has had. `mounts` maps volumes of the pod to
        folders on this machine. Returns the pod's process, whose pid is the container's own, and
        the address."""
        self._last += 1
        space = f"{self._bridge}-{self._last}"
        address = f"10.192.{self._number}.{self._last}"
        _ip("netns", "add", space)
        self._spaces.append(space)
        _ip("link", "add", f"{self._bridge}p{self._last}", "master", self._bridge, "type", "veth",
            "peer", "name", "eth0", "netns", space)
        _ip("link", "set", f"{self._bridge}p{self._last}", "up")
        _ip("-n", space, "address", "add", f"{address}/24", "dev", "eth0")
        _ip("-n", space, "link", "set", "eth0", "up")
        _ip("-n", space, "link", "set", "lo", "up")
        process = subprocess.Popen(
            ["ip", "netns", "exec", space, "unshare", "--mount", "--propagation", "private",
             "/bin/bash", "-ec", self._script(pod, mounts)],
            stdout=log,
            stderr=log,
            stdin=subprocess.DEVNULL,
        )
        self._tell(pod, address)
        return process, address

    def forget(self, pod):
        """Removes the names of a pod that has ended."""
        self._tell(pod, None)

    def _resolv_conf(self):
        """The text of resolv.conf, as a kubelet writes it."""
        search = [f"{self._namespace}.svc.cluster.local", "svc.cluster.local", "cluster.local"]
        node = self._node.split("/")[0]
        return f"search {' '.join(search)}\nnameserver {node}\noptions ndots:5\n"

    def _script(self, pod, mounts):
        """A script that creates the root file system, read-only as in the manifests, and runs the
        container's command in it."""
        root = tempfile.mkdtemp(dir=self._folder, prefix="root-")
        os.chmod(root, 0o755)
        for folder in ("usr", "etc", "proc", "dev", "opt/bin"):
            os.makedirs(os.path.join(root, folder))
        for link in ("bin", "lib", "lib64", "sbin"):
            os.symlink(f"usr/{link}", os.path.join(root, link))
        for name, text in (
            ("hosts", "127.0.0.1 localhost\n"),
            ("nsswitch.conf", "hosts: files dns\n"),
            ("resolv.conf", self._resolv_conf()),
            ("passwd", "root:x:0:0::/:/bin/false\n"),
        ):
            with open(os.path.join(root, "etc", name), "w", encoding="utf-8") as file:
                file.write(text)
        # Programs find libraries that Debian has in several variants through these files.
        shutil.copytree("/etc/alternatives", f"{root}/etc/alternatives", symlinks=True)
        shutil.copy("/etc/ld.so.cache", f"{root}/etc")
        lines = [f"mount --bind {root} {root}"]

        def bind(source, target, read_only):
            quoted = shlex.quote(root + target)
            lines.append(f"mount --bind {shlex.quote(source)} {quoted}")
            if read_only:
                lines.append(f"mount -o remount,bind,ro {quoted}")

        bind("/usr", "/usr", True)
        bind(self._programs, "/opt/bin", True)
        lines.append(f"mount --bind /dev {root}/dev")
        lines.append(f"mount -t proc proc {root}/proc")
        for mount in pod.container["volumeMounts"]:
            target = mount["mountPath"]
            os.makedirs(root + target)
            bind(mounts[mount["name"]], target, mount.get("readOnly", False))
        # Last, because the folders for the mounts had to be created before.
        assert pod.container["securityContext"]["readOnlyRootFilesystem"]
        lines.append(f"mount -o remount,bind,ro {root}")
        env = {"PATH": "/opt/bin:/usr/bin", **pod.env}
        uid = pod.spec["securityContext"]["runAsUser"]
        gid = pod.spec["securityContext"]["runAsGroup"]
        words = ["exec", "chroot", f"--userspec={uid}:{gid}", root, "/usr/bin/env", "-i"]
        words += [f"{name}={value}" for name, value in env.items()]
        lines.append(shlex.join(words + pod.argv()))
        return "\n".join(lines)
