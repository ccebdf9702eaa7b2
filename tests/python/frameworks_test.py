# SPDX-License-Identifier: Apache-2.0

"""The tests of frameworks/, each file run in the environment that has the frameworks."""

import glob
import os
import unittest

import environments
from environments import ROOT


class FrameworksTest(unittest.TestCase):
    """A test for each file, named after it."""


def _test_of(path):
    def test(self):
        environment = environments.with_frameworks()
        environment.python(
            path,
            limit=900,  # for all tests in the file
            env={
                "HOLDFAST_PS_SERVER": f"{environment.folder}/bin/ps_server",
                # Different numbers of threads give different bits.
                "OMP_NUM_THREADS": "1",
                "PYTHONPATH": f"{ROOT}/python/tests:{ROOT}/tests/python/frameworks",
            },
        )

    return test


for _path in glob.glob(f"{ROOT}/tests/python/frameworks/*_test.py"):
    setattr(FrameworksTest, "test_" + os.path.basename(_path)[: -len("_test.py")], _test_of(_path))


if __name__ == "__main__":
    unittest.main()
