"""@portable//:archives: all libraries but glibc's, as static archives.

What --config=portable links in place of the libraries of bazel/system.bzl: the
archives that bazel/portable/archives.sh makes, and Debian's own. One group, of
which the linker takes what is needed.

The folder is that of HOLDFAST_PORTABLE, or else the newest that the script has
made. Bazel asks for it only where the config is used.
"""

# Of archives.sh.
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

# Debian's. libstdc++ and libgcc_eh are GCC's; RE2's tables of characters, which
# its source package lacks, are data, and so fit from libre2.a.
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

_BUILD = """package(default_visibility = ["//visibility:public"])

cc_library(
    name = "archives",
    linkopts = {linkopts},
)
"""

def _portable_impl(ctx):
    folder = ctx.os.environ.get("HOLDFAST_PORTABLE", "")
    if not folder:
        cache = ctx.os.environ.get("XDG_CACHE_HOME", "") or ctx.os.environ["HOME"] + "/.cache"
        folder = cache + "/holdfast-portable/current"
    folder = ctx.path(folder)
    if not folder.exists:
        fail("\n\nThe static archives are not there. Make them:\n    bazel/portable/archives.sh\n")
    folder = str(folder.realpath)
    linkopts = (
        # Our own definitions go before Abseil's (common/base/steady_waits.cc).
        ["-Wl,-z,muldefs", "-Wl,-z,defs", "-Wl,--start-group"] +
        ["%s/lib%s.a" % (folder, name) for name in _BUILT] +
        ["-l:lib%s.a" % name for name in _DEBIAN] +
        ["-Wl,--end-group", "-lpthread", "-ldl", "-lrt", "-lm"]
    )
    ctx.file("BUILD", _BUILD.format(linkopts = linkopts))

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
