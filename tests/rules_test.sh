#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# Checks that each rule in the tables of docs/protocol/recovery.md and tables.md
# has a test, whose name ends with the label of the rule, in each file that the
# table names; and that no test ends with the label of a rule that is in no
# table.
set -euo pipefail

# The source tree itself, not the runfiles of the test.
cd "$(dirname "$(readlink -f WORKSPACE)")"

failed=0
complain() {
  echo "$1"
  failed=1
}

rows=0
labels=' '
while IFS='|' read -r _ label _ _ files _; do
  label="${label// /}"
  labels+="$label "
  rows=$((rows + 1))
  for file in ${files//,/ }; do
    path=$(find ./cli ./client ./common ./ps_server ./tests ./worker -path "*/${file}_test.cc" -print -quit)
    if [[ -z "$path" ]]; then
      complain "rule $label: there is no ${file}_test.cc"
    elif ! grep -qE "_$label(_[A-Z][0-9]+)*\)" "$path"; then
      complain "rule $label: no test of $path ends with _$label"
    fi
  done
done < <(grep -hE '^\| [A-Z][0-9]+ \| ' docs/protocol/{recovery,tables}.md)
[[ $rows -ge 30 ]] || complain "only $rows rules were found"

for label in $(grep -rhoE '_[BPRSTV][0-9]+(_[A-Z][0-9]+)*\)' --include='*_test.cc' \
                 cli client common ps_server tests worker |
               grep -oE '[A-Z][0-9]+' | sort -u); do
  # Steps have labels of their own: L, G, C and A.
  [[ "$label" =~ ^[LGCA] || "$labels" == *" $label "* ]] ||
    complain "tests end with _$label, which is not a rule of docs/protocol/"
done
exit $failed
