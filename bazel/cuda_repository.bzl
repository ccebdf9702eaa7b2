# SPDX-License-Identifier: Apache-2.0

"""@cuda: the CUDA toolkit, if there is one.

@cuda//:headers    of CUDA and cuBLAS.
@cuda//:runtime    the same and CUDA's runtime, linked statically.
@cuda//:defs.bzl   NVCC, the compiler's path, or None without a toolkit.

The toolkit is $CUDA_HOME, otherwise the one whose nvcc is in the PATH,
otherwise /usr/local/cuda. CUDA_HOME=none builds without a toolkit:

    bazel build --repo_env=CUDA_HOME=none //...

Nothing links to the driver or to cuBLAS; see docs/operating/gpu.md.
"""

_BUILD = """package(default_visibility = ["//visibility:public"])

exports_files(["nvcc_version"])

cc_library(
    name = "headers",
    hdrs = glob([
        "include/*.h",
        "include/*.hpp",
        "include/crt/*",
    ]),
    includes = ["include"],
)

cc_library(
    name = "runtime",
    srcs = ["libcudart_static.a"],
    deps = [":headers"],
    linkopts = ["-ldl", "-lpthread", "-lrt"],
)
"""

_NONE_BUILD = """exports_files(["defs.bzl"])
"""

def _find_home(ctx):
    home = ctx.os.environ.get("CUDA_HOME", "")
    if home == "none":
        return None
    if home:
        return ctx.path(home)
    nvcc = ctx.which("nvcc")
    if nvcc:
        return nvcc.realpath.dirname.dirname
    usual = ctx.path("/usr/local/cuda")
    return usual if usual.get_child("bin").get_child("nvcc").exists else None

def _cuda_impl(ctx):
    home = _find_home(ctx)
    if not home:
        ctx.file("BUILD", _NONE_BUILD)
        ctx.file("defs.bzl", "NVCC = None\n")
        return
    nvcc = home.get_child("bin").get_child("nvcc")
    runtime = None
    for folder in ["lib64", "lib", "targets/x86_64-linux/lib"]:
        candidate = ctx.path(str(home) + "/" + folder + "/libcudart_static.a")
        if candidate.exists:
            runtime = candidate
            break
    include = home.get_child("include")
    if not nvcc.exists or not runtime or not include.get_child("cublas_v2.h").exists:
        fail("\n\n%s is not a complete CUDA toolkit: it lacks bin/nvcc, " % home +
             "lib64/libcudart_static.a or include/cublas_v2.h. Set CUDA_HOME to one that " +
             "has them, or to \"none\" to build without a toolkit.\n")
    version = ctx.execute([nvcc, "--version"])
    if version.return_code != 0:
        fail("\n\n%s --version: %s\n" % (nvcc, version.stderr))

    ctx.symlink(include, "include")
    ctx.symlink(runtime, "libcudart_static.a")

    # An input of every compilation by nvcc, so that another toolkit causes a
    # rebuild.
    ctx.file("nvcc_version", version.stdout)
    ctx.file("defs.bzl", "NVCC = \"%s\"\n" % nvcc)
    ctx.file("BUILD", _BUILD)

_cuda = repository_rule(
    implementation = _cuda_impl,
    configure = True,
    environ = ["CUDA_HOME", "PATH"],
)

def cuda_repository():
    """Defines @cuda."""
    _cuda(name = "cuda")
