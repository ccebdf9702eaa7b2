# SPDX-License-Identifier: Apache-2.0

"""Runs the tests of a folder, counts them, and gives the reason for each skipped one.

    run_unittests.py FOLDER [names of tests, as for unittest; default: all]
"""

import os
import sys
import unittest


def main():
    folder = os.path.abspath(sys.argv[1])
    loader = unittest.TestLoader()
    if len(sys.argv) > 2:
        loader.testNamePatterns = [f"*{name}*" for name in sys.argv[2:]]
    tests = loader.discover(folder, pattern="*_test.py")
    result = unittest.TextTestRunner(stream=sys.stdout, verbosity=2).run(tests)
    for test, why in result.skipped:
        print(f"SKIPPED {test}: {why}")
    # `failures` and `errors` list each failed subtest separately.
    ended_badly = [test for test, _ in result.failures + result.errors]
    failed = len({getattr(test, "test_case", test).id() for test in ended_badly})
    skipped = len(result.skipped)
    passed = result.testsRun - failed - skipped
    print(f"{passed} passed, {failed} failed, {skipped} skipped")
    return 0 if result.wasSuccessful() else 1


if __name__ == "__main__":
    sys.exit(main())
