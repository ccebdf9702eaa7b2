"""The models of gpu_benchmark in PyTorch, forward and backward: steps per second.

Parameters and gradients stay on the GPU: there are no transfers but the batch's.
"""

import sys
import time

import torch
from torch import nn
from torch.nn import functional as F


def convolution(inputs, outputs, size, stride=1):
    return nn.Sequential(
        nn.Conv2d(inputs, outputs, size, stride, size // 2, bias=False),
        nn.BatchNorm2d(outputs))


class Block(nn.Module):

    def __init__(self, inputs, outputs, stride):
        super().__init__()
        self.body = nn.Sequential(
            convolution(inputs, outputs, 3, stride), nn.ReLU(),
            convolution(outputs, outputs, 3))
        self.shortcut = (nn.Identity() if inputs == outputs else
                         convolution(inputs, outputs, 1, stride))

    def forward(self, x):
        return F.relu(self.body(x) + self.shortcut(x))


def mlp():
    return nn.Sequential(nn.Flatten(), nn.Linear(784, 4096), nn.ReLU(),
                         nn.Linear(4096, 4096), nn.ReLU(), nn.Linear(4096, 10))


def resnet():
    return nn.Sequential(
        convolution(1, 16, 3), nn.ReLU(), Block(16, 16, 1), Block(16, 32, 2),
        Block(32, 64, 2), nn.AdaptiveAvgPool2d(1), nn.Flatten(),
        nn.Linear(64, 10))


def steps_per_second(model, batch, dtype, seconds):
    model = model.cuda()
    host = torch.rand(batch, 1, 28, 28).pin_memory()
    labels = torch.arange(batch).remainder(10).cuda()

    def step():
        model.zero_grad(set_to_none=True)
        x = host.cuda(non_blocking=True)
        with torch.autocast("cuda", dtype or torch.float16,
                            enabled=dtype is not None):
            loss = F.cross_entropy(model(x), labels)
        loss.backward()
        return loss.item()

    for _ in range(5):
        step()
    torch.cuda.synchronize()
    begin = time.perf_counter()
    steps = 0
    while time.perf_counter() - begin < seconds:
        step()
        steps += 1
    torch.cuda.synchronize()
    return steps / (time.perf_counter() - begin)


def main():
    if not torch.cuda.is_available():
        print("PyTorch: nothing was measured: it sees no GPU")
        return
    seconds = float(sys.argv[1]) if len(sys.argv) > 1 else 5
    print(f"PyTorch {torch.__version__}")
    for name, make, batch in (("mlp", mlp, 1024), ("resnet", resnet, 512)):
        for kind, tf32, dtype in (("float32", False, None), ("tf32", True, None),
                                  ("bf16", True, torch.bfloat16),
                                  ("fp16", True, torch.float16)):
            torch.backends.cuda.matmul.allow_tf32 = tf32
            torch.backends.cudnn.allow_tf32 = tf32
            rate = steps_per_second(make(), batch, dtype, seconds)
            print(f"{name:8} {kind:9} {rate:10.1f} {rate * batch:12.0f}")


main()
