#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# Tests the status page (ps_server/page/) in headless Chromium, with made-up
# jobs and a real one. The last line is "N passed, N failed, N skipped".
#
#   tests/page/run.sh [names of tests, as for unittest; default: all]
#
# Installs Chromium on Debian 12 if it is missing, as root or with sudo, and
# selenium from PyPI under ~/.cache.
set -euo pipefail

cd "$(dirname "${BASH_SOURCE[0]}")/../.."
deploy/local/setup.sh chromium chromium-driver fonts-dejavu-core libnss3-tools
python="$(tests/python/environment.sh tests/page/requirements.txt)/bin/python3"
/usr/bin/bazel build //cli:holdfast //ps_server //worker:ps_worker //tests/slow_worker >&2
PYTHONDONTWRITEBYTECODE=1 "$python" tests/run_unittests.py tests/page "$@"
