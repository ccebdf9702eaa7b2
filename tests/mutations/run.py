#!/usr/bin/env python3
"""Breaks each rule of docs/recovery.md, and says which of the simulated world's
tests finds it: docs/mutations.md.

  tests/mutations/run.py [--jobs=2] [--tree=DIR] [R1_shard T5 ...]

Copies the working tree, applies all mutations to the copy, builds its tests
once, and runs them with one mutation on at a time, the fastest test first, until
one fails. Exit status 1: a mutation does not apply, a test fails without any,
or one that is not known to be equivalent survives.
"""
import argparse
import concurrent.futures
import os
import re
import shutil
import subprocess
import sys
import tempfile
import time

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
from mutations import MUTATIONS  # noqa: E402

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))

# The fastest first.
TESTS = [
    "tests/exploration/rpc_faults_test",
    "tests/exploration/exploration_test",
    "tests/simulation/protocol_simulation_test",
    "tests/simulation/asynchronous_simulation_test",
    "tests/simulation/recovery_simulation_test",
]

# A schedule that hangs a machine itself.
TIMEOUT_S = 300

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
    """Where lines are broken says nothing."""
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
                         f"text {len(found)} times, once is expected:\n{change.before}")
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


def run(tree, name):
    """(the test that fails, its first words), or None; and seconds."""
    begun = time.time()
    environment = dict(os.environ, GTEST_BREAK_ON_FAILURE="", GTEST_FAIL_FAST="1")
    if name:
        environment["HOLDFAST_MUTANT"] = name
    for test in TESTS:
        try:
            done = subprocess.run([os.path.join(tree, "bazel-bin", test)], cwd=tree, env=environment,
                                  stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
                                  errors="replace", timeout=TIMEOUT_S)
        except subprocess.TimeoutExpired:
            return (test, "it does not end"), time.time() - begun
        if done.returncode != 0:
            why = re.search(r'Which is: "(.*)', done.stdout) or re.search(r"(Check failed.*)", done.stdout)
            case = re.search(r"\[ RUN      \] (\S+)\s(?!.*\[ RUN)", done.stdout, re.S)
            words = (why.group(1) if why else done.stdout[-200:]).split("\\n")[0][:110]
            return (f"{test} {case.group(1) if case else ''}", words), time.time() - begun
    return None, time.time() - begun


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("names", nargs="*", help="mutations, or their beginnings; default: all")
    parser.add_argument("--jobs", type=int, default=os.cpu_count())
    parser.add_argument("--tree", help="for the copy; kept. Default: a temporary one")
    parser.add_argument("--build", default="bazel", help="the command that builds")
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
    failure, seconds = run(tree, None)
    print(f"without a mutation: {'PASS' if failure is None else failure} ({seconds:.0f} s)", flush=True)
    bad = failure is not None
    with concurrent.futures.ThreadPoolExecutor(flags.jobs) as pool:
        for mutation, (found, seconds) in zip(chosen, pool.map(lambda m: run(tree, m.name), chosen)):
            if found is not None:
                print(f"{mutation.name}: killed by {found[0]} ({seconds:.0f} s): {found[1]}", flush=True)
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
