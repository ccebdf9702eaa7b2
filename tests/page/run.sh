#!/bin/bash
# Tests the status page (ps_server/page/) in headless Chromium, with made-up
# jobs and a real one. The last line is "N passed, N failed, N skipped".
#
#   tests/page/run.sh [names of tests, as for unittest; default: all]
#
# Installs Chromium on Debian 12 if it is missing, as root or with sudo, and
# selenium from PyPI under ~/.cache.
set -euo pipefail

cd "$(dirname "${BASH_SOURCE[0]}")/../.."
deploy/local/setup.sh
missing=()
for package in chromium chromium-driver fonts-dejavu-core libnss3-tools; do
  dpkg-query --show --showformat='${db:Status-Abbrev}' "$package" 2>/dev/null | grep -q '^[ih]i ' ||
    missing+=("$package")
done
if ((${#missing[@]} > 0)); then
  as_root=(env DEBIAN_FRONTEND=noninteractive)
  ((EUID == 0)) || as_root=(sudo "${as_root[@]}")
  apt=("${as_root[@]}" apt-get -qq -o DPkg::Lock::Timeout=600)
  "${apt[@]}" update
  "${apt[@]}" install --yes --no-install-recommends "${missing[@]}" >&2
fi
python="$(tests/python/environment.sh tests/page/requirements.txt)/bin/python3"
/usr/bin/bazel build //cli:holdfast //ps_server //worker:ps_worker //tests/slow_worker >&2
PYTHONDONTWRITEBYTECODE=1 "$python" tests/run_unittests.py tests/page "$@"
