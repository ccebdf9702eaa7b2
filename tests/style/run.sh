#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# Checks what a reader sees before the code: formatting, shell scripts and license headers of all
# files, and clang-tidy on the C++ files that have changed.
#
#   tests/style/run.sh [--fix] [--base=COMMIT] [--no-tidy]
#
# --fix      formats C++ files instead of reporting them.
# --base     what "changed" is measured against. Default: where this branch left origin/main, or
#            else the commit before this one; changes that are not committed count too.
# --no-tidy  leaves clang-tidy out, which needs a build before it for generated headers.
#
# The last line of output is "N passed, N failed", of checks.
set -uo pipefail

cd "$(dirname "${BASH_SOURCE[0]}")/../.." || exit 1

fix=
base=
tidy=1
for argument in "$@"; do
  case "$argument" in
    --fix) fix=1 ;;
    --base=?*) base="${argument#*=}" ;;
    --no-tidy) tidy= ;;
    *)
      sed -n '3,/^$/ s/^# \{0,1\}//p' "${BASH_SOURCE[0]}" >&2
      exit 2
      ;;
  esac
done

deploy/local/setup.sh clang-format-14 clang-tidy-14 shellcheck || exit 1

passed=0
failed=0
check() {
  local name="$1" output
  shift
  if output="$("$@" 2>&1)"; then
    passed=$((passed + 1))
    echo "ok      $name"
  else
    failed=$((failed + 1))
    echo "FAILED  $name"
    echo "$output" | head -n 200
  fi
}

# Tracked, and new files that are not ignored.
files() {
  git ls-files --cached --others --exclude-standard "$@" | while read -r file; do
    [[ ! -f "$file" ]] || echo "$file"
  done
}

format() {
  local how=(--dry-run -Werror)
  [[ -z "$fix" ]] || how=(-i)
  files '*.h' '*.cc' '*.cu' '*.cuh' | xargs --max-procs="$(nproc)" --max-args=50 \
    clang-format-14 "${how[@]}"
}

shell_scripts() {
  {
    files '*.sh' '.ci/run'
    # Scripts without an ending.
    files 'deploy/debian/*' | while read -r file; do
      if head -n 1 "$file" | grep -q '^#!/bin/\(ba\)\?sh'; then echo "$file"; fi
    done
  } | sort -u | xargs shellcheck --external-sources --severity=warning
}

license_headers() {
  local missing
  missing="$(files '*.h' '*.cc' '*.cu' '*.cuh' '*.proto' '*.py' '*.sh' '*.bzl' '*/BUILD' BUILD |
    grep -v '/testdata/' | xargs grep --files-without-match 'SPDX-License-Identifier: Apache-2.0')"
  [[ -z "$missing" ]] || {
    echo "these lack the line \"SPDX-License-Identifier: Apache-2.0\" at their head:"
    echo "$missing"
    return 1
  }
}

clang_tidy() {
  if [[ -z "$base" ]]; then
    base="$(git merge-base HEAD origin/main 2>/dev/null)"
    [[ -n "$base" && "$base" != "$(git rev-parse HEAD)" ]] || base=HEAD^
  fi
  local changed sources
  changed="$(git diff --name-only --diff-filter=d "$base" -- '*.cc')" || return 1
  mapfile -t sources < <(grep -v '^tests/benchmark/peers/' <<<"$changed" | grep .)
  ((${#sources[@]} > 0)) || return 0
  # A file takes up to half a minute, so only a sample of a large change is checked.
  local most=30
  if ((${#sources[@]} > most)); then
    mapfile -t sources < <(printf '%s\n' "${sources[@]}" | shuf --random-source=.clang-tidy | head -n "$most")
  fi
  bazel/compile_commands.py || return 1
  printf '%s\n' "${sources[@]}" | xargs --max-procs="$(nproc)" --max-args=1 \
    clang-tidy-14 --quiet -p . --extra-arg=-Wno-unknown-warning-option
}

check "clang-format" format
check "shellcheck" shell_scripts
check "license headers" license_headers
if [[ -n "$tidy" && -z "$base" ]] && ! git rev-parse --quiet --verify HEAD^ >/dev/null; then
  echo "skipped clang-tidy: this clone has no earlier commit to compare with; give one with --base"
elif [[ -n "$tidy" ]]; then
  check "clang-tidy" clang_tidy
fi
echo "$passed passed, $failed failed"
((failed == 0))
