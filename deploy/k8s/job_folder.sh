# SPDX-License-Identifier: Apache-2.0

# shellcheck shell=bash
# For check.sh and tls.sh: reads a job's kustomization.yaml.

# read_job_folder PROGRAM FOLDER sets namespace, num_ps and num_workers, or prints an error and
# exits with 2.
read_job_folder() {
  local program="$1" file="$2/kustomization.yaml"
  if [[ ! -r "$file" ]]; then
    echo "$program: $file cannot be read; give a folder such as deploy/k8s/example" >&2
    exit 2
  fi
  namespace="$(sed -n 's/^namespace: *\([a-z0-9-]*\) *\(#.*\)\?$/\1/p' "$file")"
  read -r num_ps num_workers < <(
    sed -n 's/^ *literals: *\[ps=\([0-9]*\), workers=\([0-9]*\)\].*$/\1 \2/p' "$file"
  ) || true
  if [[ -z "$namespace" || -z "${num_ps:-}" || -z "${num_workers:-}" ]]; then
    echo "$program: $file must have lines such as \"namespace: mnist\" and" \
      "\"literals: [ps=2, workers=2]\"" >&2
    exit 2
  fi
  local name
  for name in num_ps num_workers; do
    if ((10#${!name} < 1 || 10#${!name} > 1000)); then
      echo "$program: $file: ${name#num_}=${!name}: must be from 1 to 1000" >&2
      exit 2
    fi
  done
}
