# SPDX-License-Identifier: Apache-2.0

"""The models of gpu_benchmark in PyTorch: steps per second, for each way of transfer.

A step copies the parameters from pinned host memory to the GPU, computes forward and backward
pass, and copies the gradients to pinned memory, like a worker of a parameter server:

  plain         one after the other, in one stream
  overlapped    each gradient is copied in a separate stream as soon as it is ready
  resident      only the batch is transferred, as in PyTorch without a server

The model runs in one of these modes:

  eager         operation by operation, PyTorch's default
  compiled      by torch.compile
  graphs        by torch.compile with CUDA graphs (mode="reduce-overhead")

A mode that fails, for example because Triton is missing, is reported and left out.

Usage: torch_benchmark.py [--seconds=3] [--models=mlp,...] [--types=float32,...]
                          [--ways=plain,...] [--modes=eager,...]
                          [--device=cpu --batch=4]     # to try the script
"""

import argparse
import contextlib
import itertools
import time

import torch
from torch import nn
from torch.nn import functional as F


def convolution(inputs, outputs, size, stride=1, groups=1):
    return nn.Sequential(
        nn.Conv2d(inputs, outputs, size, stride, size // 2, groups=groups,
                  bias=False),
        nn.BatchNorm2d(outputs))


class Block(nn.Module):
    """A residual block, of two convolutions of 3 x 3 or a bottleneck of three."""

    def __init__(self, inputs, outputs, stride, middle=None):
        super().__init__()
        if middle is None:
            self.body = nn.Sequential(
                convolution(inputs, outputs, 3, stride), nn.ReLU(inplace=True),
                convolution(outputs, outputs, 3))
        else:
            self.body = nn.Sequential(
                convolution(inputs, middle, 1), nn.ReLU(inplace=True),
                convolution(middle, middle, 3, stride), nn.ReLU(inplace=True),
                convolution(middle, outputs, 1))
        self.shortcut = (nn.Identity() if inputs == outputs and stride == 1 else
                         convolution(inputs, outputs, 1, stride))

    def forward(self, x):
        return F.relu(self.body(x) + self.shortcut(x), inplace=True)


def mlp():
    return nn.Sequential(nn.Flatten(), nn.Linear(784, 4096), nn.ReLU(),
                         nn.Linear(4096, 4096), nn.ReLU(), nn.Linear(4096, 10))


def resnet():
    return nn.Sequential(
        convolution(1, 16, 3), nn.ReLU(), Block(16, 16, 1), Block(16, 32, 2),
        Block(32, 64, 2), nn.AdaptiveAvgPool2d(1), nn.Flatten(),
        nn.Linear(64, 10))


def resnet50():
    layers = [convolution(3, 64, 7, 2), nn.ReLU(inplace=True),
              nn.MaxPool2d(3, 2, 1)]
    inputs = 64
    for stage, blocks in enumerate((3, 4, 6, 3)):
        middle = 64 << stage
        for block in range(blocks):
            stride = 2 if stage > 0 and block == 0 else 1
            layers.append(Block(inputs, 4 * middle, stride, middle))
            inputs = 4 * middle
    return nn.Sequential(*layers, nn.AdaptiveAvgPool2d(1), nn.Flatten(),
                         nn.Linear(inputs, 1000))


def mobilenet():
    layers = [convolution(3, 32, 3), nn.ReLU(inplace=True)]
    inputs = 32
    for outputs, stride in ((64, 1), (128, 2), (128, 1), (256, 2), (256, 1),
                            (512, 2), (512, 1), (512, 1), (512, 1), (512, 1),
                            (512, 1), (1024, 2), (1024, 1)):
        layers += [convolution(inputs, inputs, 3, stride, inputs),
                   nn.ReLU(inplace=True), convolution(inputs, outputs, 1),
                   nn.ReLU(inplace=True)]
        inputs = outputs
    return nn.Sequential(*layers, nn.AdaptiveAvgPool2d(1), nn.Flatten(),
                         nn.Linear(inputs, 1000))


MODELS = {
    "mlp": (mlp, 1024, (1, 28, 28), 10),
    "resnet": (resnet, 512, (1, 28, 28), 10),
    "resnet50": (resnet50, 256, (3, 224, 224), 1000),
    "mobilenet": (mobilenet, 128, (3, 112, 112), 1000),
}
TYPES = {
    "float32": (False, None),
    "tf32": (True, None),
    "bfloat16": (True, torch.bfloat16),
    "float16": (True, torch.float16),
}


MODES = {
    "eager": None,
    "compiled": "default",
    "graphs": "reduce-overhead",
}


def pinned(tensor, device):
    """The tensor in memory from which the device copies directly."""
    return tensor.pin_memory() if device == "cuda" else tensor


def synchronize(device):
    if device == "cuda":
        torch.cuda.synchronize()


class Steps:
    """Training steps of one model with one way of transfer."""

    def __init__(self, name, dtype, way, channels_last, mode, flags):
        make, batch, shape, classes = MODELS[name]
        batch = flags.batch or batch
        self.device = flags.device
        layout = (torch.channels_last
                  if channels_last else torch.contiguous_format)
        self.model = make().to(self.device).to(memory_format=layout)
        self.run = (self.model if MODES[mode] is None else
                    torch.compile(self.model, mode=MODES[mode]))
        self.inputs = [
            pinned(torch.rand(batch, *shape).contiguous(memory_format=layout),
                   self.device) for _ in range(2)
        ]
        self.labels = torch.arange(batch).remainder(classes).to(self.device)
        self.dtype = dtype
        self.way = way
        self.parameters = list(self.model.parameters())

        def host_memory():
            return [pinned(torch.empty_like(p.data, device="cpu"), self.device)
                    for p in self.parameters]
        self.hosts = host_memory()
        for host, parameter in zip(self.hosts, self.parameters):
            host.copy_(parameter.data)
        self.gradients = host_memory()
        self.copies = (torch.cuda.Stream()
                       if self.device == "cuda" else None)
        self.steps = 0
        if way == "overlapped":
            for i, parameter in enumerate(self.parameters):
                parameter.register_post_accumulate_grad_hook(
                    lambda p, i=i: self.bring(p, i))

    def bring(self, parameter, i):
        if self.copies is None:
            self.gradients[i].copy_(parameter.grad)
            return
        self.copies.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(self.copies):
            self.gradients[i].copy_(parameter.grad, non_blocking=True)
        parameter.grad.record_stream(self.copies)

    def upload(self):
        with torch.no_grad():
            for host, parameter in zip(self.hosts, self.parameters):
                parameter.copy_(host, non_blocking=True)

    def step(self):
        self.steps += 1
        # The step before has ended, so CUDA graphs may use its memory again.
        torch.compiler.cudagraph_mark_step_begin()
        self.model.zero_grad(set_to_none=True)
        if self.way != "resident":
            self.upload()
        x = self.inputs[self.steps % 2].to(self.device, non_blocking=True)
        with (torch.autocast(self.device, self.dtype)
              if self.dtype is not None else contextlib.nullcontext()):
            loss = F.cross_entropy(self.run(x), self.labels)
        loss.backward()
        if self.way == "plain":
            for parameter, host in zip(self.parameters, self.gradients):
                host.copy_(parameter.grad, non_blocking=True)
        synchronize(self.device)
        return loss.item()


def steps_per_second(seconds, *how):
    # Nothing that was compiled for another model is used.
    torch.compiler.reset()
    steps = Steps(*how)
    for _ in range(5):
        steps.step()
    begin = time.perf_counter()
    count = 0
    while time.perf_counter() - begin < seconds:
        steps.step()
        count += 1
    return count / (time.perf_counter() - begin)


def product(tf32, dtype, seconds):
    """Operations per second of a product of 8192 x 8192, of random values."""
    side = 8192
    a, b = (torch.rand(side, side, device="cuda").to(dtype or torch.float32)
            for _ in range(2))
    for _ in range(3):
        a @ b
    torch.cuda.synchronize()
    begin = time.perf_counter()
    count = 0
    while time.perf_counter() - begin < seconds:
        for _ in range(5):
            a @ b
        count += 5
        torch.cuda.synchronize()
    return 2 * side**3 * count / (time.perf_counter() - begin)


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n", 1)[0])
    parser.add_argument("--seconds", type=float, default=3)
    parser.add_argument("--models",
                        default="product,mlp,resnet,resnet50,mobilenet")
    parser.add_argument("--types", default=",".join(TYPES))
    parser.add_argument("--ways", default="plain,overlapped,resident")
    parser.add_argument("--modes", default="eager")
    parser.add_argument("--device", choices=("cuda", "cpu"), default="cuda")
    parser.add_argument("--batch", type=int, default=0,
                        help="examples in a batch; 0: as many as gpu_benchmark")
    flags = parser.parse_args()
    if flags.device == "cuda" and not torch.cuda.is_available():
        print("PyTorch: nothing was measured: it sees no GPU")
        return
    models = flags.models.split(",")
    name = torch.cuda.get_device_name() if flags.device == "cuda" else "CPU"
    print(f"PyTorch {torch.__version__}, {name}")
    print("model     type          way        mode      layout    steps/s  "
          "examples/s")
    for kind in flags.types.split(","):
        tf32, dtype = TYPES[kind]
        torch.backends.cuda.matmul.allow_tf32 = tf32
        torch.backends.cudnn.allow_tf32 = tf32
        if "product" in models and flags.device == "cuda":
            rate = product(tf32, dtype, flags.seconds)
            print(f"product   {kind:12}  {rate / 1e12:.1f} TFLOP/s")
        for name in (n for n in models if n != "product"):
            layouts = (False,) if name == "mlp" else (False, True)
            for channels_last, mode, way in itertools.product(
                    layouts, flags.modes.split(","), flags.ways.split(",")):
                layout = "NHWC" if channels_last else "NCHW"
                what = f"{name:9} {kind:12}  {way:10} {mode:9} {layout:8}"
                try:
                    rate = steps_per_second(flags.seconds, name, dtype, way,
                                            channels_last, mode, flags)
                except Exception as error:
                    if MODES[mode] is None:
                        raise
                    reason = str(error).strip().split("\n", 1)[0]
                    print(f"{what} not measured: {type(error).__name__}: "
                          f"{reason}", flush=True)
                    continue
                batch = flags.batch or MODELS[name][1]
                print(f"{what} {rate:8.2f} {rate * batch:11.0f}", flush=True)


main()
