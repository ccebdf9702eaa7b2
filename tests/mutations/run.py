#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Breaks each rule of docs/protocol/recovery.md in turn, and reports which test of the simulated
world detects it: docs/development/mutations.md.

  tests/mutations/run.py [--jobs=2] [--tree=DIR] [--schedules=100] [R1_shard T5 ...]

Copies the working tree, applies all mutations to the copy, builds the tests once, and runs
their cases with one mutation on at a time, fastest first, until one fails. Exit status 1: a
mutation does not apply, a test fails without a mutation, or a mutation that is not known to be
equivalent survives.
"""
import argparse
import concurrent.futures
import os
import re
import resource
import shutil
import signal
import subprocess
import sys
import tempfile
import threading

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
from mutations import MUTATIONS  # noqa: E402

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))

TESTS = [
    "tests/exploration/rpc_faults_test",
    "tests/exploration/exploration_test",
    "tests/simulation/protocol_simulation_test",
    "tests/simulation/asynchronous_simulation_test",
    "tests/simulation/recovery_simulation_test",
]

# A case in which a machine loops forever is aborted after this much CPU time plus 20 times what
# it takes without a mutation; a case that blocks, after 20 times that limit in wall time.
MIN_CPU_S = 20

SWITCH = """
#ifndef HOLDFAST_TESTS_MUTATIONS_MUTANT_
#define HOLDFAST_TESTS_MUTATIONS_MUTANT_
#include <cstdlib>
#include <cstring>
inline bool Mutant(const char* name) {
  static const char* const chosen = std::getenv("HOLDFAST_MUTANT");
  return chosen != nullptr && std::strcmp(chosen, name) == 0;
}
#endif
"""


def flat(text):
    """A pattern for `text` that ignores line breaks and indentation."""
    return re.compile(r"\s+".join(re.escape(word) for word in text.split()))


def apply_all(tree):
    touched = set()
    for mutation in MUTATIONS:
        for change in mutation.changes:
            path = os.path.join(tree, change.file)
            with open(path) as file:
                text = file.read()
            found = list(flat(change.before).finditer(text))
            if len(found) != 1:
                sys.exit(f"{mutation.name} does not apply: {change.file} has its "
                         f"text {len(found)} times, expected once:\n{change.before}")
            start, end = found[0].span()
            text = text[:start] + change.after.strip() + text[end:]
            with open(path, "w") as file:
                file.write(text)
            touched.add(path)
    for path in touched:
        with open(path) as file:
            text = file.read()
        include = text.index("#include")
        with open(path, "w") as file:
            file.write(text[:include] + SWITCH + text[include:])


def cases_of(tree):
    """The (test, case) pairs of all tests."""
    cases = []
    for test in TESTS:
        listed = subprocess.run([os.path.join(tree, "bazel-bin", test), "--gtest_list_tests"],
                                stdout=subprocess.PIPE, check=True, text=True).stdout
        for line in listed.splitlines():
            if line.startswith("  "):
                cases.append((test, suite + line.split()[0]))
            elif line.endswith(".") or ".  #" in line:
                suite = line.split()[0]
    return cases


def run_case(tree, mutant, case, cpu_limit, schedules):
    """Returns what is broken, or None; and the CPU time in seconds."""
    test, name = case
    environment = dict(os.environ, HOLDFAST_SIMULATION_SCHEDULES=str(schedules))
    environment.pop("HOLDFAST_MUTANT", None)
    if mutant:
        environment["HOLDFAST_MUTANT"] = mutant
    def limit():
        if cpu_limit is not None:
            resource.setrlimit(resource.RLIMIT_CPU, (int(cpu_limit), int(cpu_limit)))
    process = subprocess.Popen([os.path.join(tree, "bazel-bin", test), "--gtest_filter=" + name],
                               cwd=tree, env=environment, stdout=subprocess.PIPE, preexec_fn=limit,
                               stderr=subprocess.STDOUT, text=True, errors="replace")
    timer = threading.Timer(20 * (cpu_limit or 3600), process.kill)
    timer.start()
    output = process.stdout.read()
    _, status, usage = os.wait4(process.pid, 0)
    timer.cancel()
    seconds = usage.ru_utime + usage.ru_stime
    if status == 0:
        return None, seconds
    if os.WIFSIGNALED(status) and os.WTERMSIG(status) in (signal.SIGXCPU, signal.SIGKILL):
        return "it does not end", seconds
    why = re.search(r'Which is: "(.*)', output) or re.search(r"(Check failed.*)", output)
    return (why.group(1) if why else output[-200:]).split("\\n")[0][:110], seconds


def run(tree, mutant, baseline, schedules):
    """Returns (the first case that fails, why), or None; and the CPU time in seconds.

    Cases that are named after the rule run first, then the fastest."""
    spent = 0
    label = "_" + mutant.split("_")[0]
    for case, usual in sorted(baseline.items(), key=lambda item: (not item[0][1].endswith(label), item[1])):
        why, seconds = run_case(tree, mutant, case, MIN_CPU_S + 20 * usual, schedules)
        spent += seconds
        if why is not None:
            return (case, why), spent
    return None, spent


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("names", nargs="*",
                        help="names of mutations, or prefixes of them; default: all")
    parser.add_argument("--jobs", type=int, default=os.cpu_count())
    parser.add_argument("--tree",
                        help="directory for the copy, which is kept; default: a temporary one")
    parser.add_argument("--schedules", type=int, default=100,
                        help="schedules of each random simulation")
    parser.add_argument("--build", default="bazel", help="the build command")
    flags = parser.parse_args()

    tree = flags.tree or tempfile.mkdtemp(prefix="mutations.")
    os.makedirs(tree, exist_ok=True)
    listed = subprocess.run(["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"],
                            cwd=ROOT, stdout=subprocess.PIPE, check=True, text=True).stdout
    for name in filter(None, listed.split("\0")):
        source, copy = os.path.join(ROOT, name), os.path.join(tree, name)
        if not os.path.exists(source):
            continue
        os.makedirs(os.path.dirname(copy), exist_ok=True)
        shutil.copyfile(source, copy)
        shutil.copymode(source, copy)
    apply_all(tree)
    subprocess.run(flags.build.split() + ["build"] + ["//%s:%s" % os.path.split(test) for test in TESTS], cwd=tree, check=True)

    chosen = [m for m in MUTATIONS
              if not flags.names or any(m.name.startswith(n) for n in flags.names)]
    bad = False
    with concurrent.futures.ThreadPoolExecutor(flags.jobs) as pool:
        def usual(case):
            return case, run_case(tree, None, case, None, flags.schedules)
        baseline = {}
        for case, (why, seconds) in pool.map(usual, cases_of(tree)):
            baseline[case] = seconds
            if why is not None:
                print(f"without a mutation: {' '.join(case)}: {why}", flush=True)
                bad = True
        print(f"without a mutation: {len(baseline)} cases, {sum(baseline.values()):.0f} s", flush=True)

        def judge(mutation):
            return run(tree, mutation.name, baseline, flags.schedules)
        for mutation, (found, seconds) in zip(chosen, pool.map(judge, chosen)):
            if found is not None:
                (test, case), why = found
                print(f"{mutation.name}: killed by {os.path.basename(test)} {case} "
                      f"({seconds:.0f} s): {why}", flush=True)
            elif mutation.equivalent:
                print(f"{mutation.name}: equivalent: {mutation.equivalent}", flush=True)
            else:
                print(f"{mutation.name}: SURVIVES ({seconds:.0f} s): {mutation.what}", flush=True)
                bad = True
    if not flags.tree:
        shutil.rmtree(tree, ignore_errors=True)
    sys.exit(bad)


if __name__ == "__main__":
    main()
