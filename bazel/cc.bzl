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
_NUMERICS = ["-ffp-contract=off"]

HOLDFAST_COPTS = _WARNINGS + _NUMERICS

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

def holdfast_cc_library(name, copts = [], **kwargs):
    """cc_library with our warnings and numerics."""
    kwargs.setdefault("linkstatic", True)  # No .so of it: one compile, one archive.
    native.cc_library(name = name, copts = HOLDFAST_COPTS + copts, **kwargs)

def holdfast_cc_binary(name, copts = [], linkopts = [], deps = [], **kwargs):
    """cc_binary with our warnings and numerics."""
    native.cc_binary(
        name = name,
        copts = HOLDFAST_COPTS + copts,
        linkopts = _LINKOPTS + linkopts,
        deps = deps + _RUNTIME,
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
    kwargs.setdefault("size", "small")
    native.cc_test(
        name = name,
        copts = HOLDFAST_COPTS + copts,
        linkopts = _LINKOPTS + linkopts,
        deps = deps + ["@system//:gmock_main" if main else "@system//:gmock"] + _RUNTIME,
        **kwargs
    )
