"""CUDA code, and what depends on whether the build has a CUDA toolkit.

    load("//bazel:cuda.bzl", "cuda_library", "if_cuda")
"""

load("@cuda//:defs.bzl", "NVCC")
load("//bazel:cc.bzl", "holdfast_cc_library")

# The GPUs that we compile for, and PTX, which the driver compiles for later ones.
_TARGETS = [
    "arch=compute_75,code=sm_75",
    "arch=compute_80,code=sm_80",
    "arch=compute_90,code=sm_90",
    "arch=compute_90,code=compute_90",
]

# Without contraction to FMA our kernels round as the CPU does and as all kinds of
# GPU do; they wait for memory, not for arithmetic.
_FLAGS = [
    "-std=c++17",
    "-O3",
    "--fmad=false",
    "--extended-lambda",
    "--threads=2",
    "-Xcompiler=-fPIC,-ffp-contract=off,-Wall,-Wextra,-Wno-unused-parameter",
] + ["-gencode=" + target for target in _TARGETS]

def if_cuda(with_cuda, without_cuda = []):
    """The first where there is a CUDA toolkit, else the second."""
    return with_cuda if NVCC else without_cuda

def cuda_library(name, srcs, hdrs = [], **kwargs):
    """A C++ library of .cu files. Nothing at all without a CUDA toolkit.

    Args:
      name: of the library.
      srcs: .cu files.
      hdrs: included by them and by who uses the library, by their path in the
        tree.
      **kwargs: as in cc_library.
    """
    if not NVCC:
        return
    objects = []
    for src in srcs:
        compiled = src[:-len(".cu")] + ".pic.o"
        native.genrule(
            name = src[:-len(".cu")] + "_cu",
            srcs = [src, "@cuda//:nvcc_version"] + hdrs,
            outs = [compiled],
            cmd = "%s -c %s -I. -o $@ $(location %s)" % (NVCC, " ".join(_FLAGS), src),
            message = "Compiling for GPUs",
            visibility = ["//visibility:private"],
        )
        objects.append(compiled)
    holdfast_cc_library(
        name = name,
        srcs = objects,
        hdrs = hdrs,
        deps = ["@cuda//:runtime"],
        **kwargs
    )
