"""cc_library, cc_binary and cc_test as Holdfast uses them.

Every C++ target of ours is declared with these, so that warnings and the rules
that the results depend on hold everywhere:

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
    # Always a bug: no value returned, a dropped absl::Status, a read of nothing.
    "-Werror=return-type",
    "-Werror=unused-result",
    "-Werror=uninitialized",
    "-Werror=delete-non-virtual-dtor",
    "-Werror=format",
    "-Werror=switch",
]

# Without this GCC contracts a*b+c to FMA where the machine has it, and the same
# job gives other bits on another machine. Also in .bazelrc, for generated code.
_NUMERICS = ["-ffp-contract=off"]

HOLDFAST_COPTS = _WARNINGS + _NUMERICS

# Abseil and gRPC are some sixty shared libraries; a program loads those whose
# symbols it uses. Must stand before them, hence here and not in .bazelrc.
_LINKOPTS = ["-Wl,--as-needed"]

# Debian's Abseil and gRPC are not instrumented; without this ThreadSanitizer does
# not see what they order. AddressSanitizer reports what they leak.
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
