# SPDX-License-Identifier: Apache-2.0

"""Libraries of the operating system as Bazel targets.

@system//:<library>  one target for each entry of _LIBRARIES below, and the two
                     programs protoc and grpc_cpp_plugin.
@absl//:<package>    one target for each absl_<package>.pc that Abseil installs,
                     so "@absl//:strings", "@absl//:flat_hash_map" and so on.

pkg-config says where they are. All targets link to shared libraries, which
keeps linking fast; with --config=portable all programs link static archives
instead (bazel/portable/). The compiler finds headers in /usr/include, so they
are visible without a dependency; a missing dependency shows up as a link error.

Bazel does not watch /usr: after a change of the installed libraries, run
`bazel sync --configure`, and `bazel clean` if headers have changed.
"""

# Keyed by label. `pc`: the pkg-config module. `header`: for a header-only
# library without a module, a file in /usr/include. `package`: the Debian
# package to name if the library is missing. `libs`: replaces the output of
# pkg-config, which for gRPC includes all of Abseil and libraries that only a
# static link needs. `deps`: other targets in this table.
_LIBRARIES = {
    "benchmark": struct(pc = "benchmark", package = "libbenchmark-dev"),
    "boost": struct(header = "boost/beast/version.hpp", package = "libboost1.74-dev"),
    "crypto": struct(pc = "libcrypto", package = "libssl-dev"),
    "glog": struct(pc = "libglog", package = "libgoogle-glog-dev"),
    "gmock": struct(pc = "gmock", package = "libgmock-dev", deps = [":gtest"]),
    "gmock_main": struct(pc = "gmock_main", package = "libgmock-dev", deps = [":gmock"]),
    "gpr": struct(pc = "gpr", package = "libgrpc-dev", libs = ["-lgpr"]),
    "grpc": struct(pc = "grpc", package = "libgrpc-dev", libs = ["-lgrpc"], deps = [":gpr"]),
    "grpc++": struct(
        pc = "grpc++",
        package = "libgrpc++-dev",
        libs = ["-lgrpc++"],
        deps = [
            ":grpc",
            ":protobuf",
            "@absl//:status",
            "@absl//:strings",
            "@absl//:synchronization",
        ],
    ),
    "gtest": struct(pc = "gtest", package = "libgtest-dev"),
    "gtest_main": struct(pc = "gtest_main", package = "libgtest-dev", deps = [":gtest"]),
    "isal": struct(pc = "libisal", package = "libisal-dev"),
    "jpeg": struct(pc = "libjpeg", package = "libjpeg62-turbo-dev"),
    "openblas": struct(pc = "openblas", package = "libopenblas-dev"),
    "png": struct(pc = "libpng", package = "libpng-dev"),
    "prometheus": struct(pc = "prometheus-cpp-core", package = "prometheus-cpp-dev"),
    "protobuf": struct(pc = "protobuf", package = "libprotobuf-dev"),
    "re2": struct(pc = "re2", package = "libre2-dev"),
    "ssl": struct(pc = "libssl", package = "libssl-dev", deps = [":crypto"]),
    "xxhash": struct(header = "xxhash.h", package = "libxxhash-dev"),
    "zip": struct(pc = "libzip", package = "libzip-dev"),
    "zlib": struct(pc = "zlib", package = "zlib1g-dev"),
}

_PROGRAMS = {
    "grpc_cpp_plugin": "protobuf-compiler-grpc",
    "protoc": "protobuf-compiler",
}

_HEADER = """package(default_visibility = ["//visibility:public"])
"""

_CC_LIBRARY = """
cc_library(
    name = "{name}",
    hdrs = {hdrs},
    includes = {includes},
    linkopts = select({{
        "@//bazel/portable:enabled": [],
        "//conditions:default": {linkopts},
    }}),
    deps = {deps} + select({{
        "@//bazel/portable:enabled": ["@portable//:archives"],
        "//conditions:default": [],
    }}),
)
"""

def _fail_missing(packages):
    fail("\n\nThe build needs Debian packages that are not installed. Run\n" +
         "    deploy/local/setup.sh\nor\n    apt-get install " +
         " ".join(sorted(packages)) + "\n")

def _pkg_config(ctx, args):
    """The words that pkg-config prints, or None when the module is unknown."""
    program = ctx.which("pkg-config")
    if not program:
        _fail_missing(["pkg-config"])
    result = ctx.execute([program] + args)
    if result.return_code != 0:
        return None
    return [word for word in result.stdout.replace("\n", " ").split(" ") if word]

def _unique(words):
    return {word: None for word in words}.keys()

def _system_impl(ctx):
    build = [_HEADER]
    missing = {}

    for name, package in _PROGRAMS.items():
        program = ctx.which(name)
        if not program:
            missing[package] = None
            continue

        # A symbolic link, so that Bazel sees the program's contents and
        # rebuilds when they change.
        ctx.symlink(program, name)
        build.append('\nexports_files(["%s"])\n' % name)

    for name, library in _LIBRARIES.items():
        if hasattr(library, "pc"):
            flags = _pkg_config(ctx, ["--cflags", "--libs", library.pc])
        else:
            flags = [] if ctx.path("/usr/include/" + library.header).exists else None
        if flags == None:
            missing[library.package] = None
            continue
        libs = getattr(library, "libs", None)
        linkopts = []
        includes = []
        for flag in _unique(flags):
            if flag.startswith("-I"):
                # pkg-config omits /usr/include itself. The symbolic link makes
                # the folder part of the repository, so that `includes`
                # (-isystem) may name it.
                folder = "include_%s_%d" % (name, len(includes))
                ctx.symlink(flag[len("-I"):], folder)
                includes.append(folder)
            elif flag.startswith("-L"):
                linkopts.append(flag)
            elif flag.startswith("-l") and not libs:
                linkopts.append(flag)
        build.append(_CC_LIBRARY.format(
            name = name,
            hdrs = "glob(%s)" % [folder + "/**/*.h" for folder in includes] if includes else "[]",
            includes = includes,
            linkopts = linkopts + (libs or []),
            deps = getattr(library, "deps", []),
        ))

    if missing:
        _fail_missing(missing.keys())
    ctx.file("BUILD", "".join(build))

_ENVIRON = ["PKG_CONFIG_PATH"]

_system = repository_rule(
    implementation = _system_impl,
    configure = True,
    environ = _ENVIRON,
)

def _pc_field(text, field):
    for line in text.split("\n"):
        if line.startswith(field + ":"):
            return line[len(field) + 1:].strip()
    return ""

def _absl_impl(ctx):
    folder = _pkg_config(ctx, ["--variable=pcfiledir", "absl_base"])
    if not folder:
        _fail_missing(["libabsl-dev"])

    build = [_HEADER]
    for path in ctx.path(folder[0]).readdir():
        if not path.basename.startswith("absl_") or not path.basename.endswith(".pc"):
            continue
        text = ctx.read(path)

        # "absl_base = 20220623, absl_config = 20220623"
        requires = [r.strip().split(" ")[0] for r in _pc_field(text, "Requires").split(",")]
        build.append(_CC_LIBRARY.format(
            name = path.basename[len("absl_"):-len(".pc")],
            hdrs = "[]",
            includes = [],
            linkopts = [
                word
                for word in _pc_field(text, "Libs").split(" ")
                if word.startswith("-labsl_")
            ],
            deps = [":" + r[len("absl_"):] for r in requires if r.startswith("absl_")],
        ))
    ctx.file("BUILD", "".join(build))

_absl = repository_rule(
    implementation = _absl_impl,
    configure = True,
    environ = _ENVIRON,
)

def system_repositories():
    """Defines @system and @absl."""
    _system(name = "system")
    _absl(name = "absl")
