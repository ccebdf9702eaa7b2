#!/bin/bash
# Runs on a machine with a GPU what bundle.sh has put into this file's folder:
#
#   run.sh                  all that compares and checks, one part after the other
#   run.sh PART...          those parts
#   run.sh --at_once ...    the same, side by side: for a machine with many cores
#   run.sh --benchmark      measures, beside PyTorch where that is installed
#   run.sh --job FILE       trains that job, 2 ps and 2 workers on the GPU
#
# Parts, those that tell most first:
#
#   clusters    2 ps and 2 workers train four example jobs, twice each
#   parity      GPU beside CPU, operation by operation and in whole models
#   blocking    the same with each kernel awaited (CUDA_LAUNCH_BLOCKING=1)
#   memcheck, initcheck, synccheck, racecheck
#               our kernels under compute-sanitizer; cuDNN's under memcheck alone
#
# Each part has a limit ($LIMIT seconds, or 300) and a log of its own (in $LOGS, if
# that is set), and nothing of one keeps another from running. Exit code 0: all that ran went well.
# A machine without a GPU runs nothing, and says so; where nvidia-smi shows one,
# that is an error.
set -uo pipefail
here="$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd -P)"
readonly here
logs="${LOGS:-$(mktemp -d)}"
readonly limit="${LIMIT:-300}"
mkdir -p "$logs"
readonly all=(clusters parity blocking memcheck initcheck synccheck racecheck)

# cuBLAS and cuDNN may be there as Python packages alone.
for folder in $(python3 -c '
import glob, site, sys
for path in {*site.getsitepackages(), site.getusersitepackages(), *sys.path}:
    print(*glob.glob(path + "/nvidia/*/lib"))' 2>/dev/null); do
  LD_LIBRARY_PATH="${LD_LIBRARY_PATH:+$LD_LIBRARY_PATH:}$folder"
done
export LD_LIBRARY_PATH

sanitizer="$(command -v compute-sanitizer || ls /usr/local/cuda/bin/compute-sanitizer 2>/dev/null)"
readonly sanitizer

# sanitize TESTS TOOL OPTION...: all tests but those that match TESTS, and the
# loss curves, which repeat the kernels of the rest.
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
  # cuBLAS' kernels are not ours to judge, and racecheck ends with an internal
  # error, which spoils the rest, where those for tensor cores run.
  racecheck)
    sanitize '*Cudnn*:*Tf32*:*SixteenBits*:*RoundedCopies*' \
      racecheck --kernel-name kernel_substring=holdfast
    ;;
  # On Hopper cuBLAS' kernels for 16 bits write by the bulk copy engine (TMA),
  # which initcheck does not see: it reports the columns that cublasGemmEx wrote
  # as uninitialized when our Fold<1> reads them. memcheck reports nothing there.
  initcheck) sanitize '*Cudnn*:*SixteenBits*:*RoundedCopies*' initcheck ;;
  *)
    echo "run.sh: no part $1; there are: ${all[*]}" >&2
    return 2
    ;;
  esac
}

# One part, its end in a file: seconds and exit code.
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
