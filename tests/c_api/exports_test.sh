#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# Checks that the dynamic symbols of the library are exactly the functions of
# the header, except for those that replace functions of Debian's Abseil where
# that is a shared library; that a test calls each function; and that the name
# of the library contains the version of the API.
set -euo pipefail

header=client/c_api/holdfast.h
library=client/c_api/libholdfast.so
tests=(tests/c_api/calls.c tests/c_api/c_api_testing.h tests/c_api/*_test.cc)

fail() {
  echo "FAILED: $*"
  exit 1
}

declared=$(sed -n '/^HOLDFAST_EXPORT/,/;/p' "$header" |
  grep -oE '\bholdfast_[a-z_]+\(' | tr -d '(' | sort)
[ "$(wc -l <<< "$declared")" -gt 30 ] || fail "no functions found in $header"

exported=$(nm --dynamic --defined-only "$library" |
  awk '$2 ~ /[B-Z]/ { sub(/@.*/, "", $3); print $3 }' |
  grep -vE '^(AbslInternalPerThreadSem|_ZN4absl.*GetCurrentTimeNanosEv$)' | sort)
diff <(echo "$declared") <(echo "$exported") ||
  fail "$library does not export what $header declares (<)"

for function in $declared; do
  grep -qw "$function" "${tests[@]}" || fail "no test calls $function"
done

version=$(sed -n 's/^#define HOLDFAST_API_VERSION //p' "$header")
soname=$(readelf --dynamic "$library" | sed -n 's/.*soname: \[\(.*\)\]/\1/p')
[ "$soname" = "libholdfast.so.$version" ] || fail "the soname is $soname"
