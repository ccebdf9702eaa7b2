# SPDX-License-Identifier: Apache-2.0

"""ruff and mypy --strict, at the pinned versions."""

import os
import unittest

import environments
from environments import ROOT, TOOLS


class StyleTest(unittest.TestCase):
    def test_check(self):
        environments.run(
            f"{ROOT}/python/check.sh",
            env={**os.environ, "PATH": f"{TOOLS}/bin:{os.environ['PATH']}"},
        )


if __name__ == "__main__":
    unittest.main()
