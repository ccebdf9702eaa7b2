#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# Runs the content of a bundle.sh folder, which contains this file, on a machine
# with a GPU:
#
#   run.sh                  all comparisons and checks, one part after the other
#   run.sh PART...          those parts
#   run.sh --at_once ...    the same, side by side: for a machine with many cores
#   run.sh --benchmark      measures, also PyTorch if that is installed
#   run.sh --job FILE       trains that job with 2 ps and 2 workers on the GPU
#
# Parts, most informative first:
#
#   clusters    2 ps and 2 workers train some of the example jobs, twice each
#   parity      compares GPU and CPU, operation by operation and in whole models
#   blocking    the same, waiting for each kernel (CUDA_LAUNCH_BLOCKING=1)
#   memcheck, initcheck, synccheck, racecheck
#               our kernels under compute-sanitizer; cuDNN's only under memcheck
#
# Each part has a timeout ($LIMIT seconds, default 300) and its own log (in
# $LOGS, if that is set), and a failure of one part does not prevent the others
# from running. The exit code is 0 if all parts that ran succeeded. Without a
# GPU, nothing runs, and the output says so; if nvidia-smi shows a GPU, that is
# an error.
set -uo pipefail
here="$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd -P)"
readonly here
logs="${LOGS:-$(mktemp -d)}"
readonly limit="${LIMIT:-300}"
mkdir -p "$logs"
readonly all=(clusters parity blocking memcheck initcheck synccheck racecheck)

# cuBLAS and cuDNN may be installed only as Python packages.
for folder in $(python3 -c '
import glob, site, sys
for path in {*site.getsitepackages(), site.getusersitepackages(), *sys.path}:
    print(*glob.glob(path + "/nvidia/*/lib"))' 2>/dev/null); do
  LD_LIBRARY_PATH="${LD_LIBRARY_PATH:+$LD_LIBRARY_PATH:}$folder"
done
export LD_LIBRARY_PATH

sanitizer="$(command -v compute-sanitizer || ls /usr/local/cuda/bin/compute-sanitizer 2>/dev/null)"
readonly sanitizer

# sanitize TESTS TOOL OPTION...: runs all tests except those that match TESTS
# and the loss curves, which repeat the kernels of the others.
sanitize() {
  if [[ -z "$sanitizer" ]]; then
    echo "no case ran: compute-sanitizer is not installed"
    return 0
  fi
  timeout "$limit" "$sanitizer" --tool "${@:2}" --error-exitcode 99 \
    "$here/gpu_parity_test" --gtest_filter="-*LossCurve*:$1"
}

run_part() {
  case "$1" in
  clusters) timeout "$limit" "$here/cluster_test.sh" "$here" ;;
  parity) timeout "$limit" "$here/gpu_parity_test" ;;
  blocking) CUDA_LAUNCH_BLOCKING=1 timeout "$limit" "$here/gpu_parity_test" ;;
  memcheck) sanitize '' memcheck ;;
  synccheck) sanitize '*Cudnn*' synccheck ;;
  # cuBLAS's kernels are not under test, and those for tensor cores make
  # racecheck fail with an internal error, which spoils the other results.
  racecheck)
    sanitize '*Cudnn*:*Tf32*:*SixteenBits*:*RoundedCopies*' \
      racecheck --kernel-name kernel_substring=holdfast
    ;;
  # On Hopper, cuBLAS's kernels for 16 bits write with the bulk copy engine
  # (TMA), which initcheck does not track: it reports the columns that
  # cublasGemmEx wrote as uninitialized when our Fold<1> reads them. memcheck
  # reports nothing there.
  initcheck) sanitize '*Cudnn*:*SixteenBits*:*RoundedCopies*' initcheck ;;
  *)
    echo "run.sh: no part $1; there are: ${all[*]}" >&2
    return 2
    ;;
  esac
}

# Runs one part, and writes its seconds and exit code to a file.
time_part() {
  local begin="$SECONDS" code=0
  run_part "$1" >"$logs/$1.log" 2>&1 || code=$?
  if ((code == 0)) && grep -q 'no case ran' "$logs/$1.log" &&
    [[ "$1" == clusters || "$1" == parity ]] && nvidia-smi -L 2>/dev/null | grep -q GPU; then
    echo "nvidia-smi shows a GPU: no case ran is an error" >>"$logs/$1.log"
    code=1
  fi
  echo "$((SECONDS - begin)) $code" >"$logs/$1.end"
}

at_once=false
if [[ "${1-}" == --at_once ]]; then
  at_once=true
  shift
fi
case "${1-}" in
--benchmark)
  shift
  "$here/gpu_benchmark" "$@"
  if python3 -c 'import torch' 2>/dev/null; then
    python3 "$here/torch_benchmark.py" "$@"
  else
    echo "PyTorch is not installed: not measured"
  fi
  exit
  ;;
--job)
  exec "$here/holdfast" local --job="$2" --ps=2 --workers=2 \
    --worker_flags=--device=cuda:0 --run_dir="$(mktemp -d)"
  ;;
esac

parts=("$@")
((${#parts[@]} > 0)) || parts=("${all[@]}")
for part in "${parts[@]}"; do
  if $at_once; then time_part "$part" & else time_part "$part"; fi
done
wait
worst=0
printf '%-10s %8s %5s\n' part seconds code
for part in "${parts[@]}"; do
  read -r seconds code <"$logs/$part.end"
  printf '%-10s %8s %5s   %s\n' "$part" "$seconds" "$code" "$(tail -n 1 "$logs/$part.log")"
  ((code == 0)) || worst=1
done
for part in "${parts[@]}"; do
  read -r _ code <"$logs/$part.end"
  ((code == 0)) && continue
  echo "==== $part"
  tail -n 60 "$logs/$part.log"
done
exit $worst
