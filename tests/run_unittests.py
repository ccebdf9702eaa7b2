# SPDX-License-Identifier: Apache-2.0

"""Runs the tests of a folder, counts them, gives the reason for each skipped one, and names the
slowest.

    run_unittests.py FOLDER [names of tests, as for unittest; default: all]
"""

import os
import sys
import time
import unittest

SLOWEST = 10


class TimedResult(unittest.TextTestResult):
    """Has the seconds that each test took, with setUp and tearDown."""

    def __init__(self, *args, **kwargs):
        super().__init__(*args, **kwargs)
        self.seconds = {}

    def startTest(self, test):
        super().startTest(test)
        self._begin = time.monotonic()

    def stopTest(self, test):
        self.seconds[test.id()] = time.monotonic() - self._begin
        super().stopTest(test)


def main():
    folder = os.path.abspath(sys.argv[1])
    loader = unittest.TestLoader()
    if len(sys.argv) > 2:
        loader.testNamePatterns = [f"*{name}*" for name in sys.argv[2:]]
    tests = loader.discover(folder, pattern="*_test.py")
    runner = unittest.TextTestRunner(stream=sys.stdout, verbosity=2, resultclass=TimedResult)
    result = runner.run(tests)
    slowest = sorted(result.seconds.items(), key=lambda test: -test[1])[:SLOWEST]
    for test, seconds in slowest:
        print(f"{seconds:6.1f} s  {test}")
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
