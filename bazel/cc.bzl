# SPDX-License-Identifier: Apache-2.0

"""cc_library, cc_binary and cc_test as Holdfast uses them.

All C++ targets of Holdfast are declared with these macros, so that warnings,
and the options on which results depend, are the same everywhere:

    load("//bazel:cc.bzl", "holdfast_cc_binary", "holdfast_cc_library", "holdfast_cc_test")
"""

# Warnings for our own code; system headers and generated code are exempt (the
# compiler treats both as system headers).
_WARNINGS = [
    "-Wall",
    "-Wextra",
    "-Wnon-virtual-dtor",
    "-Woverloaded-virtual",
    # An override names parameters that it does not use; an options struct is
    # filled by name.
    "-Wno-unused-parameter",
    "-Wno-missing-field-initializers",
    # Always a bug: a missing return value, a dropped absl::Status, an
    # uninitialized read.
    "-Werror=return-type",
    "-Werror=unused-result",
    "-Werror=uninitialized",
    "-Werror=delete-non-virtual-dtor",
    "-Werror=format",
    "-Werror=switch",
]

# Without this, GCC contracts a*b+c to FMA on machines that support it, and the
# same job gives different bits on different machines. Also in .bazelrc, for
# generated code.
NUMERICS = ["-ffp-contract=off"]

HOLDFAST_COPTS = _WARNINGS + NUMERICS

# Tests are compiled without optimization, which takes a third of the time to compile them, except
# where the test itself computes what it expects.
UNOPTIMIZED = ["-O0", "-U_FORTIFY_SOURCE"]

def _optimizes_tests():
    package = native.package_name()
    return package == "tests/gpu" or package.startswith("worker/backend")

_NO_HEADER = struct(copts = [], deps = [])

# Compiled with other options than the header, code could not use it, or would lose those options.
def _precompiled(name, copts):
    """copts and deps that include a header of bazel/precompiled/, unless a target has copts."""
    if copts:
        return _NO_HEADER
    return struct(
        copts = select({
            "//bazel/precompiled:off": [],
            "//conditions:default": [
                "-Winvalid-pch",
                "-include",
                "$(BINDIR)/bazel/precompiled/%s.h" % name,
            ],
        }),
        deps = select({
            "//bazel/precompiled:off": [],
            "//conditions:default": ["//bazel/precompiled:" + name],
        }),
    )

# Abseil and gRPC consist of about sixty shared libraries; a program loads only
# those whose symbols it uses. This flag must precede the libraries, so it
# cannot be in .bazelrc.
_LINKOPTS = ["-Wl,--as-needed"]

# Debian's Abseil and gRPC are not instrumented: without the first,
# ThreadSanitizer does not see their synchronization; without the second,
# AddressSanitizer reports their leaks.
_RUNTIME = select({
    "//bazel/asan:enabled": ["//bazel/asan"],
    "//bazel/tsan:enabled": ["//bazel/tsan"],
    "//conditions:default": [],
})

def holdfast_cc_library(name, copts = [], deps = [], **kwargs):
    """cc_library with our warnings and numerics."""
    header = _precompiled("common", copts) if kwargs.get("srcs") else _NO_HEADER
    kwargs.setdefault("linkstatic", True)  # No .so of it: one compile, one archive.
    native.cc_library(
        name = name,
        copts = HOLDFAST_COPTS + copts + header.copts,
        deps = deps + header.deps,
        **kwargs
    )

def holdfast_cc_binary(name, copts = [], linkopts = [], deps = [], precompiled = True, **kwargs):
    """cc_binary with our warnings and numerics.

    Args:
      name: as in cc_binary.
      copts: added to ours.
      linkopts: added to ours.
      deps: as in cc_binary.
      precompiled: False for a library that replaces functions of the C library, whose inline
        definitions it must not see.
      **kwargs: as in cc_binary.
    """
    header = _precompiled("common", copts) if precompiled else _NO_HEADER
    native.cc_binary(
        name = name,
        copts = HOLDFAST_COPTS + copts + header.copts,
        linkopts = _LINKOPTS + linkopts,
        deps = deps + header.deps + _RUNTIME,
        **kwargs
    )

def holdfast_cc_test(name, copts = [], linkopts = [], deps = [], main = True, **kwargs):
    """cc_test on GoogleTest, with our warnings and numerics.

    Args:
      name: as in cc_test.
      copts: added to ours.
      linkopts: added to ours.
      deps: GoogleTest and GoogleMock are added.
      main: False when the test brings its own main().
      **kwargs: as in cc_test. `size` is "small" (60 s) unless given.
    """
    optimized = _optimizes_tests()
    header = _precompiled("optimized_test" if optimized else "test", copts)
    kwargs.setdefault("size", "small")
    native.cc_test(
        name = name,
        copts = HOLDFAST_COPTS + ([] if optimized else UNOPTIMIZED) + copts + header.copts,
        linkopts = _LINKOPTS + linkopts,
        deps = deps + ["@system//:gmock_main" if main else "@system//:gmock"] + header.deps +
               _RUNTIME,
        **kwargs
    )
