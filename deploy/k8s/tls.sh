#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# Gives a job of deploy/k8s mutual TLS (docs/operating/security.md): writes the component FOLDER/tls, for
# as many tasks as FOLDER/kustomization.yaml counts. List it there under "components:".
#
#   deploy/k8s/tls.sh FOLDER                  certificates by `holdfast certs`, as Secrets. Run
#                                             it again when a job grows. FOLDER/tls/ca.key is the
#                                             authority's key: keep it, and keep it secret
#   deploy/k8s/tls.sh FOLDER --cert-manager   cert-manager issues them, and renews them
#
# Tasks only talk to tasks of the same training, which is the folder's namespace.
set -euo pipefail

usage() {
  sed -n '3,/^set /p' "$0" | sed '$d; s/^# \{0,1\}//' >&2
  exit 2
}
(($# >= 1)) || usage
folder="$1"
by_cert_manager=false
if (($# == 2)) && [[ "$2" == --cert-manager ]]; then by_cert_manager=true; elif (($# > 1)); then usage; fi
job="$folder/kustomization.yaml"
# shellcheck source=deploy/k8s/job_folder.sh
source "$(dirname "${BASH_SOURCE[0]}")/job_folder.sh"
read_job_folder tls "$folder"
training="$namespace"
# Whether FOLDER uses ../overlays/$1.
uses() { grep -q "^resources:[^#]*overlays/$1" "$job"; }
# An evaluator next to the Jobs.
has_evaluator=false
if grep -q "^components:[^#]*overlays/evaluator" "$job"; then has_evaluator=true; fi
# Each worker has a ps in its pod.
if uses collocated; then num_ps="$num_workers"; fi

out="$folder/tls"
mkdir -p "$out"
echo "*" >"$out/.gitignore"

# "ps-0" and so on.
tasks() {
  for ((i = 0; i < num_ps; ++i)); do echo "ps-$i"; done
  for ((i = 0; i < num_workers; ++i)); do echo "worker-$i"; done
  if $has_evaluator; then echo "evaluator-0"; fi
}

# The authority and the certificates.
certificates() {
  cat <<END
apiVersion: cert-manager.io/v1
kind: Issuer
metadata: {name: holdfast-self-signed}
spec: {selfSigned: {}}
---
apiVersion: cert-manager.io/v1
kind: Certificate
metadata: {name: holdfast-ca}
spec:
  secretName: holdfast-ca
  isCA: true
  commonName: $training
  duration: 87600h
  privateKey: {algorithm: ECDSA, size: 256}
  issuerRef: {kind: Issuer, name: holdfast-self-signed}
---
apiVersion: cert-manager.io/v1
kind: Issuer
metadata: {name: holdfast}
spec: {ca: {secretName: holdfast-ca}}
END
  for task in $(tasks) operator-0; do
    cat <<END
---
apiVersion: cert-manager.io/v1
kind: Certificate
metadata: {name: holdfast-$task}
spec:
  secretName: holdfast-$task-tls
  uris: ["holdfast://$training/${task%-*}/${task##*-}"]
  dnsNames: [$task.$training]
  duration: 720h
  usages: [digital signature, key encipherment, server auth, client auth]
  privateKey: {algorithm: ECDSA, size: 256, rotationPolicy: Always}
  issuerRef: {kind: Issuer, name: holdfast}
END
  done
}

cluster() {
  local list=() i of=ps port=2222
  # The pods of this overlay are the workers'; nothing listens on their port.
  if uses collocated; then of=worker port=2223; fi
  for ((i = 0; i < num_ps; ++i)); do list+=("\"holdfast-$of-$i.holdfast-$of:2222\""); done
  printf '{"ps": [%s], ' "$(IFS=,; echo "${list[*]}")"
  list=()
  for ((i = 0; i < num_workers; ++i)); do list+=("\"holdfast-worker-$i.holdfast-worker:$port\""); done
  printf '"worker": [%s]' "$(IFS=,; echo "${list[*]}")"
  # The evaluator is never called.
  if $has_evaluator; then printf ', "evaluator": ["holdfast-evaluator-0:2222"]'; fi
  printf '}'
}

# patch ROLE COUNT JOB CONTAINER: gives that container in the pods of a Job the role. Each task of a
# role sees the certificates of all tasks of the role and uses its own, named by a flag for daemons,
# and by an environment variable for scripts.
patch() {
  local role="$1" count="$2" of="$3" container="$4" i
  local place="/etc/holdfast/tls/$role-\$(JOB_COMPLETION_INDEX)"
  local field=args entry="--tls_dir=$place"
  if [[ "$role" == worker ]] && uses script; then
    field=env entry="{name: HOLDFAST_TLS_DIR, value: $place}"
  fi
  cat <<END
  - target: {kind: Job, name: $of}
    patch: |
      - op: add
        path: /spec/template/spec/containers/$container/$field/-
        value: $entry
      - op: add
        path: /spec/template/spec/containers/$container/volumeMounts/-
        value: {name: tls-$role, mountPath: /etc/holdfast/tls, readOnly: true}
      - op: add
        path: /spec/template/spec/volumes/-
        value:
          name: tls-$role
          projected:
            defaultMode: 0440
            sources:
END
  for ((i = 0; i < count; ++i)); do
    cat <<END
              - secret:
                  name: holdfast-$role-$i-tls
                  items:
                    - {key: ca.crt, path: $role-$i/ca.crt}
                    - {key: tls.crt, path: $role-$i/tls.crt}
                    - {key: tls.key, path: $role-$i/tls.key}
END
  done
}

if $by_cert_manager; then
  certificates >"$out/certificates.yaml"
else
  holdfast certs --out="$out" --training="$training" --cluster_spec="$(cluster)" >&2
fi
{
  echo "# Written by deploy/k8s/tls.sh."
  echo "apiVersion: kustomize.config.k8s.io/v1alpha1"
  echo "kind: Component"
  if $by_cert_manager; then
    echo "resources: [certificates.yaml]"
  else
    echo "generatorOptions: {disableNameSuffixHash: true}"
    echo "secretGenerator:"
    for task in $(tasks); do
      echo "  - name: holdfast-$task-tls"
      echo "    type: kubernetes.io/tls"
      echo "    files: [$task/ca.crt, $task/tls.crt, $task/tls.key]"
    done
  fi
  echo "patches:"
  if uses collocated; then
    # The worker's container comes first, as in the overlay.
    patch worker "$num_workers" holdfast-worker 0
    patch ps "$num_ps" holdfast-worker 1
  else
    patch ps "$num_ps" holdfast-ps 0
    patch worker "$num_workers" holdfast-worker 0
  fi
  if $has_evaluator; then patch evaluator 1 holdfast-evaluator 0; fi
} >"$out/kustomization.yaml"
echo "tls: wrote $out; add it to $job: components: [tls]" >&2
