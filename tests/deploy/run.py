"""Runs the tests of this folder, each skipped one with its reason, and counts them."""

import os
import sys
import unittest


def main():
    folder = os.path.dirname(os.path.abspath(__file__))
    loader = unittest.TestLoader()
    if len(sys.argv) > 1:
        loader.testNamePatterns = [f"*{name}*" for name in sys.argv[1:]]
    tests = loader.discover(folder, pattern="*_test.py")
    result = unittest.TextTestRunner(stream=sys.stdout, verbosity=2).run(tests)
    for test, why in result.skipped:
        print(f"SKIPPED {test}: {why}")
    failed = len(result.failures) + len(result.errors)
    skipped = len(result.skipped)
    passed = result.testsRun - failed - skipped
    print(f"{passed} passed, {failed} failed, {skipped} skipped")
    return 0 if result.wasSuccessful() else 1


if __name__ == "__main__":
    sys.exit(main())
