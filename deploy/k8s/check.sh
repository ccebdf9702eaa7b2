#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# Checks a job's folder for deploy/k8s before it is applied, for errors that Kubernetes would accept
# but the daemons would refuse once they run (docs/operating/kubernetes.md).
#
#   deploy/k8s/check.sh FOLDER
#
# Exits 0 when nothing is wrong, 2 otherwise.
set -euo pipefail

if (($# != 1)); then
  sed -n '3,/^set /p' "$0" | sed '$d; s/^# \{0,1\}//' >&2
  exit 2
fi
# shellcheck source=deploy/k8s/job_folder.sh
source "$(dirname "${BASH_SOURCE[0]}")/job_folder.sh"
read_job_folder check "$1"
job="$1/job.textproto"
[[ -r "$job" ]] || {
  echo "check: $job cannot be read; it must be the job file (docs/job_file.md)" >&2
  exit 2
}
echo "check: $1: $num_ps ps and $num_workers workers in namespace $namespace"
