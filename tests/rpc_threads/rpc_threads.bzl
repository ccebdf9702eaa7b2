# SPDX-License-Identifier: Apache-2.0

"""Runs tests of ps again with several threads that serve calls."""

def test_with_rpc_threads(test, threads = 4, cases = [], **kwargs):
    """Runs a cc_test of the same package once more, as TEST_with_4_rpc_threads.

    Nothing is compiled twice. The test must start its ps through TestCluster,
    TaskCluster, Process or Program, which add the flag.

    Args:
      test: the name of the cc_test.
      threads: --rpc_threads of each ps.
      cases: GoogleTest filters that select the cases to run. Default: all.
      **kwargs: arguments of sh_test; `size`, `local` and so on should match the cc_test.
    """
    kwargs.setdefault("size", "small")
    native.sh_test(
        name = "%s_with_%d_rpc_threads" % (test, threads),
        srcs = ["//tests/rpc_threads:with_rpc_threads.sh"],
        args = [
            str(threads),
            "$(rootpath :%s)" % test,
        ] + (["--gtest_filter=" + ":".join(cases)] if cases else []),
        data = [":" + test],
        **kwargs
    )
