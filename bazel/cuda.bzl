# SPDX-License-Identifier: Apache-2.0

"""Rules for CUDA code, and for code that depends on the presence of a CUDA
toolkit.

    load("//bazel:cuda.bzl", "cuda_library", "if_cuda")
"""

load("@cuda//:defs.bzl", "NVCC")
load("//bazel:cc.bzl", "holdfast_cc_library")

# The GPU architectures for which code is compiled, and PTX, which the driver
# compiles for newer GPUs.
_TARGETS = [
    "arch=compute_75,code=sm_75",
    "arch=compute_80,code=sm_80",
    "arch=compute_90,code=sm_90",
    "arch=compute_90,code=compute_90",
]

# Without contraction to FMA, kernels round like the CPU, and equally on all
# kinds of GPU; they are limited by memory, not by arithmetic.
_FLAGS = [
    "-std=c++17",
    "-O3",
    "--fmad=false",
    "--extended-lambda",
    "--threads=2",
    "-Xcompiler=-fPIC,-ffp-contract=off,-Wall,-Wextra,-Wno-unused-parameter",
] + ["-gencode=" + target for target in _TARGETS]

def if_cuda(with_cuda, without_cuda = []):
    """Returns the first argument if there is a CUDA toolkit, otherwise the
    second."""
    return with_cuda if NVCC else without_cuda

def cuda_library(name, srcs, hdrs = [], **kwargs):
    """A C++ library of .cu files. Empty without a CUDA toolkit.

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
