#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# Compares Holdfast with its peers and the machine's limits: all do the same
# work in turn, for several rounds. Prints tables and, if everything is
# measured, inserts them into docs/performance.md and draws docs/peers.svg.
#
#   tests/benchmark/compare.sh [--rounds=3] [--only=LIST] [--output=FILE]
#       [--bin=DIR]
#
#   --only    of holdfast, tensorflow, mxnet, ps_lite, pytorch_ddp, raw_grpc,
#             memory, iperf3, separated by commas; docs/ is left alone
#   --output  the measurements, a JSON line each; default: a new file in /tmp
#   --bin     a folder with holdfast, ps_server, ps_worker, raw_grpc and
#             memory_bandwidth, instead of building them
#
# Peers are installed once, from PyPI into HOLDFAST_PEERS (default
# ~/.cache/holdfast-peers, some 8 GB); ps-lite is built if PS_LITE_SOURCE names
# its source. Peers that cannot be installed or run are reported and left out.
# Three rounds take some 15 minutes; nothing else should run meanwhile.
set -euo pipefail

readonly cache="${HOLDFAST_PEERS:-${XDG_CACHE_HOME:-$HOME/.cache}/holdfast-peers}"
export PYTHONDONTWRITEBYTECODE=1
readonly here=tests/benchmark

rounds=3
only=""
output=""
bin=""
for argument in "$@"; do
  case "$argument" in
    --rounds=*) rounds="${argument#*=}" ;;
    --only=*) only="${argument#*=}" ;;
    --output=*) output="$(realpath --canonicalize-missing "${argument#*=}")" ;;
    --bin=*) bin="$(realpath "${argument#*=}")" ;;
    *)
      sed -n '3,/^set /{/^set /d;s/^# \{0,1\}//;p}' "${BASH_SOURCE[0]}" >&2
      exit 2
      ;;
  esac
done
cd "$(dirname "${BASH_SOURCE[0]}")/../.."
[[ -n "$output" ]] || output="$(mktemp /tmp/compare.XXXXXX.jsonl)"

say() { echo "compare: $*" >&2; }

wanted() { [[ -z "$only" || ",$only," == *",$1,"* ]]; }

# apt_install PACKAGE...: installs Debian packages; on failure, prints a message
# and returns nonzero.
apt_install() {
  deploy/local/setup.sh "$@" || {
    say "cannot install $*"
    return 1
  }
}

# pip_install NAME PACKAGE...: creates the virtual environment $cache/NAME with
# these packages; on failure, prints a message and returns nonzero.
pip_install() {
  local folder="$cache/$1"
  shift
  [[ "$(cat "$folder/packages" 2>/dev/null)" != "$*" ]] || return 0
  apt_install python3-venv || return 1
  say "installing $* in $folder"
  rm -rf "$folder"
  mkdir -p "$cache"
  { /usr/bin/python3 -m venv "$folder" &&
    "$folder/bin/pip" install --quiet --disable-pip-version-check "$@" >&2 &&
    echo "$*" >"$folder/packages"; } || {
    say "cannot install $*"
    return 1
  }
}

if [[ -z "$bin" ]] && { wanted holdfast || wanted raw_grpc || wanted memory; }; then
  deploy/local/setup.sh
  /usr/bin/bazel build --noshow_progress --show_result=0 --ui_event_filters=-info \
    //cli:holdfast //ps_server //worker:ps_worker "//$here/limits:all" >&2
  built="$(/usr/bin/bazel info bazel-bin 2>/dev/null)"
  bin="$(mktemp -d)"
  trap 'rm -rf "$bin"' EXIT
  ln -s "$built"/{cli/holdfast,ps_server/ps_server,worker/ps_worker} \
    "$built/$here"/limits/{raw_grpc,memory_bandwidth} "$bin"
fi

readonly python=/usr/bin/python3

# Commands that measure MEASURE, keyed by peer; unavailable peers are left out.
declare -A commands
if wanted holdfast; then
  commands[holdfast]="$python $here/peers/holdfast.py --program=$bin/holdfast --measures=MEASURE"
fi
if wanted tensorflow && pip_install tensorflow tensorflow-cpu==2.21.0; then
  commands[tensorflow]="$cache/tensorflow/bin/python $here/peers/tensorflow_ps.py --measures=MEASURE"
fi
# The latest NumPy that works with the last MXNet.
if wanted mxnet && pip_install mxnet mxnet==1.9.1 numpy==1.23.5; then
  commands[mxnet]="$cache/mxnet/bin/python $here/peers/mxnet_kvstore.py --measures=MEASURE"
fi
if wanted ps_lite; then
  if [[ -z "${PS_LITE_SOURCE:-}" ]]; then
    say "PS_LITE_SOURCE is not set: ps-lite is not measured"
  elif apt_install libzmq3-dev &&
    "$python" "$here/peers/ps_lite.py" --build="$cache/ps_lite" >&2; then
    commands[ps_lite]="$python $here/peers/ps_lite.py --program=$cache/ps_lite/ps_lite_wire"
  fi
fi
if wanted pytorch_ddp && pip_install torch torch==2.15.0 numpy==2.4.6; then
  commands[pytorch_ddp]="$cache/torch/bin/python $here/peers/pytorch_ddp.py --measures=MEASURE"
fi
if wanted raw_grpc; then commands[raw_grpc]="$bin/raw_grpc --measures=MEASURE"; fi
if wanted memory; then commands[memory]="$bin/memory_bandwidth"; fi
if wanted iperf3 && apt_install iperf3; then
  commands[iperf3]="$python $here/peers/iperf3.py"
fi

# In the order of a round.
runs=()
add() {
  local measure="$1" name
  shift
  for name in "$@"; do
    [[ -z "${commands[$name]:-}" ]] ||
      runs+=("--run=$measure, $name=${commands[$name]//MEASURE/$measure}")
  done
}
add wire holdfast tensorflow mxnet ps_lite raw_grpc
add control holdfast raw_grpc
add softmax_sync holdfast tensorflow mxnet pytorch_ddp
add softmax_async holdfast tensorflow mxnet
add mlp_sync holdfast tensorflow mxnet pytorch_ddp
add mlp_async holdfast tensorflow mxnet
add machine memory iperf3
((${#runs[@]} > 0)) || exit 1

document=()
[[ -n "$only" ]] || document=(--document=docs/performance.md)
"$python" "$here/compare.py" --rounds="$rounds" --output="$output" "${document[@]}" "${runs[@]}"
say "measurements are in $output"

if [[ -z "$only" ]] && pip_install plot matplotlib==3.11.2; then
  "$cache/plot/bin/python" "$here/compare_plot.py" "$output" docs/peers.svg
fi
