#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# Builds everything and runs all tests except those tagged "manual". The last
# line of output is "N passed, N failed", in test cases.
#
#   tests/run.sh [flags of bazel test] [targets; default //...]
#
# Exit status 0: no test failed and at least one passed. A target that does not
# build, and a test that dies or times out, counts as one failure.
set -euo pipefail

root="$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd -P)"
cd "$root"
deploy/local/setup.sh || {
  echo "0 passed, 1 failed"
  exit 1
}

targets=(//...)
for argument in "$@"; do
  [[ "$argument" == -* ]] || targets=()
done

events="$(mktemp)"
trap 'rm -f "$events"' EXIT

flags=(--keep_going)
# Progress every second is useless in a log file.
[[ -t 2 ]] || flags+=(--show_progress_rate_limit=30)

status=0
/usr/bin/bazel test "${flags[@]}" "$@" "${targets[@]}" \
  --build_event_json_file="$events" </dev/null || status=$?

# Bazel's event stream has the result of each target, including cached ones, and
# the path of the XML report of each test.
/usr/bin/python3 - "$events" "$status" <<'COUNT'
import json
import sys
import urllib.parse
import xml.etree.ElementTree as ET

events_path, bazel_status = sys.argv[1], int(sys.argv[2])


def count_cases(uri):
    """(passed, failed) of an XML report, GoogleTest's or the one that Bazel writes
    for a test without one. Skipped and disabled cases count as neither."""
    path = urllib.parse.unquote(urllib.parse.urlparse(uri).path)
    try:
        cases = list(ET.parse(path).iter("testcase"))
    except (OSError, ET.ParseError):
        return 0, 0
    passed = failed = 0
    for case in cases:
        if case.find("failure") is not None or case.find("error") is not None:
            failed += 1
        elif case.get("status") != "notrun" and case.get("result") not in ("skipped", "suppressed"):
            passed += 1
    return passed, failed


reports = {}  # label -> (run, shard) -> (attempt, URI of the XML)
summaries = {}  # label of a test -> how it ended
broken = set()  # labels of targets that did not build
with open(events_path, encoding="utf-8") as events:
    for line in events:
        event = json.loads(line)
        ident = event["id"]
        if "testResult" in ident:
            test = ident["testResult"]
            for output in event.get("testResult", {}).get("testActionOutput", []):
                if output.get("name") == "test.xml":
                    runs = reports.setdefault(test["label"], {})
                    key = (test.get("run", 1), test.get("shard", 1))
                    attempt = test.get("attempt", 1)
                    if attempt >= runs.get(key, (0, ""))[0]:
                        runs[key] = (attempt, output.get("uri", ""))
        elif "testSummary" in ident and "testSummary" in event:
            summaries[ident["testSummary"]["label"]] = event["testSummary"].get("overallStatus")
        elif "targetCompleted" in ident:
            if not event.get("completed", {}).get("success"):
                broken.add(ident["targetCompleted"]["label"])

passed = failed = 0
for label in sorted(set(summaries) | broken):
    good = bad = 0
    for _, uri in reports.get(label, {}).values():
        case_good, case_bad = count_cases(uri)
        good, bad = good + case_good, bad + case_bad
    if label in broken or summaries[label] not in ("PASSED", "FLAKY"):
        bad = max(bad, 1)
    passed, failed = passed + good, failed + bad
if bazel_status != 0 and failed == 0 and not (bazel_status == 4 and not broken):
    failed = 1  # For instance a BUILD file that does not parse.

sys.stdout.flush()
print(f"{passed} passed, {failed} failed")
sys.exit(0 if bazel_status == 0 and failed == 0 and passed > 0 else 1)
COUNT
