# SPDX-License-Identifier: Apache-2.0

"""@portable//:archives: all libraries except glibc's, as static archives.

With --config=portable these replace the libraries of bazel/system.bzl: the
archives made by bazel/portable/archives.sh, and Debian's own. They form one
group, from which the linker takes what it needs.

The folder is $HOLDFAST_PORTABLE, otherwise the newest one made by the script.
Bazel only needs it if the config is used.
"""

# Made by archives.sh.
_BUILT = [
    "absl",
    "re2",
    "protobuf",
    "prometheus-cpp-core",
    "zip",
    "isal",
    "isal_base",
    "glog",
]

# Debian's. libstdc++ and libgcc_eh come from GCC. RE2's character tables, which
# its source package lacks, are data, so those in libre2.a can be used.
_DEBIAN = [
    "re2",
    "grpc++",
    "grpc",
    "gpr",
    "upb",
    "address_sorting",
    "cares",
    "ssl",
    "crypto",
    "png16",
    "jpeg",
    "z",
    "openblas",
    "stdc++",
    "gcc_eh",
]

_BUILD = """load("@//bazel/portable:link_flags.bzl", "link_flags")

link_flags(
    name = "archives",
    flags = {flags},
    visibility = ["//visibility:public"],
)
"""

def _portable_impl(ctx):
    folder = ctx.os.environ.get("HOLDFAST_PORTABLE", "")
    if not folder:
        cache = ctx.os.environ.get("XDG_CACHE_HOME", "") or ctx.os.environ["HOME"] + "/.cache"
        folder = cache + "/holdfast-portable/current"
    folder = ctx.path(folder)
    if not folder.exists:
        fail("\n\nThe static archives are missing. Build them:\n    bazel/portable/archives.sh\n")
    folder = str(folder.realpath)
    flags = (
        # Holdfast's definitions must precede Abseil's
        # (common/base/steady_waits.cc).
        ["-Wl,-z,muldefs", "-Wl,-z,defs", "-Wl,--start-group"] +
        ["%s/lib%s.a" % (folder, name) for name in _BUILT] +
        ["-l:lib%s.a" % name for name in _DEBIAN] +
        ["-Wl,--end-group", "-lpthread", "-ldl", "-lrt", "-lm"]
    )
    ctx.file("BUILD", _BUILD.format(flags = flags))

_portable = repository_rule(
    implementation = _portable_impl,
    local = True,
    environ = [
        "HOLDFAST_PORTABLE",
        "HOME",
        "XDG_CACHE_HOME",
    ],
)

def portable_repository():
    """Defines @portable."""
    _portable(name = "portable")
