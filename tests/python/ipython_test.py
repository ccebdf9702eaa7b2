# SPDX-License-Identifier: Apache-2.0

"""The tests of prompts/, in an environment with IPython."""

import unittest

import environments
from environments import ROOT


class IPythonTest(unittest.TestCase):
    def test_cells(self):
        environment = environments.with_ipython()
        environment.python(
            f"{ROOT}/tests/python/prompts/cells_test.py",
            env={
                "HOLDFAST_PS_SERVER": f"{environment.folder}/bin/ps_server",
                "IPYTHONDIR": environment.folder,
                "PYTHONPATH": f"{ROOT}/python/tests",
            },
        )


if __name__ == "__main__":
    unittest.main()
