# SPDX-License-Identifier: Apache-2.0

"""Debian systems that debootstrap makes, with this machine's source of packages."""

import os
import shutil
import subprocess
import urllib.request

_SUITE = "bookworm"


def run(*words, **options):
    """The output of a command, which has to succeed."""
    done = subprocess.run(
        words, capture_output=True, text=True, check=False, stdin=subprocess.DEVNULL, **options
    )
    if done.returncode != 0:
        raise AssertionError(f"{' '.join(words)}\n{done.stdout[-4000:]}\n{done.stderr[-4000:]}")
    return done.stdout.strip()


def _mirror():
    """Where this machine's apt has Debian from."""
    for line in run("apt-get", "indextargets", "--format", "$(SITE) $(RELEASE)").splitlines():
        site, release = line.rsplit(" ", 1)
        if release.startswith(_SUITE):
            return site
    raise OSError(f"apt has no source for {_SUITE}")


def why_not(*programs):
    """Why no system can be made here, or with these programs; None where it can."""
    if os.geteuid() != 0:
        return "containers and debootstrap need root"
    for program in ("debootstrap", *programs):
        if shutil.which(program) is None:
            return f"{program} is not installed"
    try:
        with urllib.request.urlopen(f"{_mirror()}/dists/{_SUITE}/Release", timeout=20):
            pass
    except (OSError, AssertionError) as error:
        return f"Debian's packages are out of reach: {error}"
    return None


def bootstrap(root, *packages):
    """Makes the smallest Debian with these packages in the folder `root`."""
    include = [f"--include={','.join(packages)}"] if packages else []
    run("debootstrap", "--variant=minbase", *include, _SUITE, root, _mirror())
