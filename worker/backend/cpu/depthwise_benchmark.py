# SPDX-License-Identifier: Apache-2.0

"""The convolutions of depthwise_benchmark in PyTorch on the CPU, in milliseconds.

PyTorch returns the memory of each result to the system, which then clears it again; unless its
allocator keeps it, this takes longer than some of the convolutions:

  MALLOC_MMAP_THRESHOLD_=4000000000 MALLOC_TRIM_THRESHOLD_=8000000000 \\
    python3 depthwise_benchmark.py [THREADS]
"""

import sys
import time

import torch
from torch.nn import functional as F

IMAGES = 32


def milliseconds(operation):
    least = float("inf")
    for _ in range(7):
        begin = time.perf_counter()
        operation()
        least = min(least, time.perf_counter() - begin)
    return 1e3 * least


def measure(side, channels, stride, layout):
    x = torch.rand(IMAGES, channels, side, side).contiguous(
        memory_format=layout)
    kernel = torch.rand(channels, 1, 3, 3).contiguous(memory_format=layout)

    def forward():
        return F.conv2d(x, kernel, None, stride, 1, 1, channels)
    dy = torch.ones_like(forward())

    def backward(of_images):
        return torch.ops.aten.convolution_backward(
            dy, x, kernel, None, [stride] * 2, [1, 1], [1, 1], False, [0, 0],
            channels, [of_images, not of_images, False])
    return [milliseconds(forward), milliseconds(lambda: backward(False)),
            milliseconds(lambda: backward(True))]


def main():
    torch.set_num_threads(int(sys.argv[1]) if len(sys.argv) > 1 else 2)
    print(f"PyTorch {torch.__version__}")
    print("images of      stride layout   forward    kernel    images")
    for side, channels, stride in ((112, 64, 1), (112, 64, 2), (56, 128, 1),
                                   (28, 256, 1), (14, 512, 1), (7, 1024, 1)):
        for name, layout in (("NHWC", torch.channels_last),
                             ("NCHW", torch.contiguous_format)):
            times = measure(side, channels, stride, layout)
            print(f"{side:3} x {side:3} x{channels:5} {stride:6} {name:6} " +
                  " ".join(f"{t:9.2f}" for t in times), flush=True)


main()
