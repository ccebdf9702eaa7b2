# SPDX-License-Identifier: Apache-2.0

"""Reference values of our optimizers and schedules from TensorFlow, Keras, Optax and PyTorch.

Prints tests/reference/optimizer_values.h, against which the tests of
ps_server/optimizer and ps_server/coordinator/schedule.h compare:

    python3 -m venv /tmp/venv
    /tmp/venv/bin/pip install tensorflow-cpu==2.21.0 optax==0.2.8 torch==2.15.0
    /tmp/venv/bin/pip uninstall triton  # its LLVM and TensorFlow's clash
    /tmp/venv/bin/python tests/reference/optimizers.py \
        > tests/reference/optimizer_values.h

Every run trains the same four elements with the same gradients in float32. A
scalar is the float32 that a job file's decimal number becomes, in TensorFlow as
in Holdfast. Schedules run in float64.
"""

import os

os.environ["CUDA_VISIBLE_DEVICES"] = ""
os.environ["TF_CPP_MIN_LOG_LEVEL"] = "3"

import jax
import keras
import numpy as np
import optax
import tensorflow as tf
import torch

f32 = np.float32

START = f32([1, -0.5, 0.25, -3])
# One gradient per step and element: steady; of changing sign; small, and 0 for a
# while; large.
GRADIENTS = f32([
    [0.5, 1, 0, 100],
    [0.5, -1, 0, -50],
    [0.25, 0.75, 1e-3, 25],
    [0.5, -0.75, 0, 300],
    [0.125, 0.5, -1e-3, 0],
    [0.5, -0.25, 1e-4, -7],
    [0.375, 2, 1e-5, 60],
    [0.5, -3, 0, 0],
])


def exact(number):
    """The float32 nearest to `number`, in the double that Python computes with."""
    return float(f32(number))


def train(step, weight_decay=0):
    """The values after each step of `step(w, gradient, t)`, which changes w."""
    w = tf.Variable(START)
    values = []
    for t, gradient in enumerate(GRADIENTS, 1):
        if weight_decay:
            gradient = gradient + f32(weight_decay) * w.numpy()
        step(w, tf.constant(gradient), t)
        values.append(w.numpy())
    return np.array(values)


def slot(value=0):
    return tf.Variable(np.full_like(START, value))


def sgd(rate, **kwargs):
    def step(w, g, _):
        tf.raw_ops.ResourceApplyGradientDescent(
            var=w.handle, alpha=f32(rate), delta=g)
    return train(step, **kwargs)


def momentum(rate, momentum, nesterov=False, **kwargs):
    a = slot()

    def step(w, g, _):
        tf.raw_ops.ResourceApplyMomentum(
            var=w.handle, accum=a.handle, lr=f32(rate), grad=g,
            momentum=f32(momentum), use_nesterov=nesterov)
    return train(step, **kwargs)


def adagrad(rate, initial=0.1, epsilon=1e-7, **kwargs):
    a = slot(initial)

    def step(w, g, _):
        tf.raw_ops.ResourceApplyAdagradV2(
            var=w.handle, accum=a.handle, lr=f32(rate), epsilon=f32(epsilon),
            grad=g)
    return train(step, **kwargs)


def rmsprop(rate, rho=0.9, momentum=0, epsilon=1e-7, centered=False, **kwargs):
    ms, mom, mg = slot(), slot(), slot()

    def step(w, g, _):
        args = dict(var=w.handle, ms=ms.handle, mom=mom.handle, lr=f32(rate),
                    rho=f32(rho), momentum=f32(momentum), epsilon=f32(epsilon),
                    grad=g)
        if centered:
            tf.raw_ops.ResourceApplyCenteredRMSProp(mg=mg.handle, **args)
        else:
            tf.raw_ops.ResourceApplyRMSProp(**args)
    return train(step, **kwargs)


def adam(rate, beta1=0.9, beta2=0.999, epsilon=1e-8, **kwargs):
    m, v = slot(), slot()

    def step(w, g, t):
        tf.raw_ops.ResourceApplyAdam(
            var=w.handle, m=m.handle, v=v.handle, lr=f32(rate),
            beta1=f32(beta1), beta2=f32(beta2), epsilon=f32(epsilon), grad=g,
            beta1_power=f32(exact(beta1)**t), beta2_power=f32(exact(beta2)**t))
    return train(step, **kwargs)


def adamw(rate, beta1=0.9, beta2=0.999, epsilon=1e-8, weight_decay=0.01):
    """By Optax, because TensorFlow has no such op, and Keras uses epsilon differently."""
    rule = optax.adamw(exact(rate), exact(beta1), exact(beta2), exact(epsilon),
                       weight_decay=exact(weight_decay))
    state = rule.init(jax.numpy.array(START))

    def step(w, g, _):
        nonlocal state
        updates, state = rule.update(
            jax.numpy.array(g.numpy()), state, jax.numpy.array(w.numpy()))
        w.assign_add(np.array(updates))
    return train(step)


def ftrl(rate, initial=0.1, l1=0, l2=0, l2_shrinkage=0, beta=0, **kwargs):
    """Keras brings beta in as l2 + beta / (2 rate)."""
    n, z = slot(initial), slot()

    def step(w, g, _):
        tf.raw_ops.ResourceApplyFtrlV2(
            var=w.handle, accum=n.handle, linear=z.handle, grad=g, lr=f32(rate),
            l1=f32(l1), l2=f32(exact(l2) + exact(beta) / (2 * exact(rate))),
            l2_shrinkage=f32(l2_shrinkage), lr_power=f32(-0.5))
    return train(step, **kwargs)


def of_torch(optimizer, rate, **kwargs):
    """The values after each step of a class of torch.optim."""
    w = torch.tensor(START)
    rule = optimizer([w], lr=exact(rate),
                     **{key: tuple(map(exact, value)) if isinstance(value, tuple)
                        else exact(value) if isinstance(value, float) else value
                        for key, value in kwargs.items()})
    values = []
    for gradient in GRADIENTS:
        w.grad = torch.tensor(gradient)
        rule.step()
        values.append(w.numpy().copy())
    return np.array(values)


RUNS = [
    ("learning_rate: 0.1 sgd {}", sgd(0.1)),
    ("learning_rate: 0.1 sgd {} weight_decay: 0.05",
     sgd(0.1, weight_decay=0.05)),
    ("learning_rate: 0.03 momentum { momentum: 0.9 }", momentum(0.03, 0.9)),
    ("learning_rate: 0.03 momentum { momentum: 0.9 nesterov: true }",
     momentum(0.03, 0.9, True)),
    ("learning_rate: 0.03 momentum { momentum: 0.9 } weight_decay: 0.3",
     momentum(0.03, 0.9, weight_decay=0.3)),
    ("learning_rate: 0.1 adagrad {}", adagrad(0.1)),
    ("learning_rate: 0.2 adagrad { initial_accumulator_value: 0"
     " epsilon: 0.01 }", adagrad(0.2, 0, 0.01)),
    ("learning_rate: 0.1 adagrad {} weight_decay: 0.2",
     adagrad(0.1, weight_decay=0.2)),
    ("learning_rate: 0.01 rmsprop {}", rmsprop(0.01)),
    ("learning_rate: 0.01 rmsprop { rho: 0.6 momentum: 0.7 epsilon: 0.01 }",
     rmsprop(0.01, 0.6, 0.7, 0.01)),
    ("learning_rate: 0.01 rmsprop { centered: true }",
     rmsprop(0.01, centered=True)),
    ("learning_rate: 0.01 rmsprop { rho: 0.6 momentum: 0.7 epsilon: 0.01"
     " centered: true }", rmsprop(0.01, 0.6, 0.7, 0.01, True)),
    ("learning_rate: 0.01 rmsprop { momentum: 0.5 } weight_decay: 0.1",
     rmsprop(0.01, momentum=0.5, weight_decay=0.1)),
    ("learning_rate: 0.01 adam {}", adam(0.01)),
    ("learning_rate: 0.02 adam { beta1: 0.5 beta2: 0.75 epsilon: 0.03 }",
     adam(0.02, 0.5, 0.75, 0.03)),
    ("learning_rate: 0.01 adam {} weight_decay: 0.1",
     adam(0.01, weight_decay=0.1)),
    ("learning_rate: 0.01 adamw {}", adamw(0.01)),
    ("learning_rate: 0.02 adamw { beta1: 0.5 beta2: 0.75 epsilon: 0.03"
     " weight_decay: 0.3 }", adamw(0.02, 0.5, 0.75, 0.03, 0.3)),
    ("learning_rate: 0.1 ftrl {}", ftrl(0.1)),
    ("learning_rate: 0.2 ftrl { initial_accumulator_value: 0 l1: 0.3 }",
     ftrl(0.2, 0, 0.3)),
    ("learning_rate: 0.1 ftrl { l1: 0.01 l2: 0.2 l2_shrinkage: 0.05 beta: 1 }",
     ftrl(0.1, 0.1, 0.01, 0.2, 0.05, 1)),
    ("learning_rate: 0.03 momentum { momentum: 0.9 nesterov: true }"
     " weight_decay: 0.3",
     of_torch(torch.optim.SGD, 0.03, momentum=0.9, nesterov=True,
              weight_decay=0.3)),
    ("learning_rate: 0.2 adagrad { initial_accumulator_value: 0.5"
     " epsilon: 1e-10 } weight_decay: 0.2",
     of_torch(torch.optim.Adagrad, 0.2, initial_accumulator_value=0.5,
              weight_decay=0.2)),
    ("learning_rate: 0.01 rmsprop { rho: 0.99 epsilon: 1e-8"
     " epsilon_form: EPSILON_PYTORCH }", of_torch(torch.optim.RMSprop, 0.01)),
    ("learning_rate: 0.01 rmsprop { rho: 0.6 epsilon: 0.01 momentum: 0.7"
     " centered: true epsilon_form: EPSILON_PYTORCH } weight_decay: 0.1",
     of_torch(torch.optim.RMSprop, 0.01, alpha=0.6, eps=0.01, momentum=0.7,
              centered=True, weight_decay=0.1)),
    ("learning_rate: 0.01 adam { epsilon_form: EPSILON_PYTORCH }",
     of_torch(torch.optim.Adam, 0.01)),
    ("learning_rate: 0.02 adam { beta1: 0.5 beta2: 0.75 epsilon: 0.03"
     " epsilon_form: EPSILON_PYTORCH } weight_decay: 0.1",
     of_torch(torch.optim.Adam, 0.02, betas=(0.5, 0.75), eps=0.03,
              weight_decay=0.1)),
    ("learning_rate: 0.02 adamw { beta1: 0.5 beta2: 0.75 epsilon: 0.03"
     " weight_decay: 0.3 }",
     of_torch(torch.optim.AdamW, 0.02, betas=(0.5, 0.75), eps=0.03,
              weight_decay=0.3)),
]

schedules = keras.optimizers.schedules


def double(number):
    """exact(number) as a tensor with which Keras computes in float64."""
    return tf.constant(exact(number), tf.float64)


RATE = double(0.1)


def rates(schedule, steps):
    return [(step, schedule(step).numpy()) for step in steps]


SCHEDULES = [
    # Keras switches after a boundary, Holdfast at the first step of a piece.
    ("piecewise { pieces { from_step: 5 learning_rate: 0.05 }"
     " pieces { from_step: 20 learning_rate: 0.01 } }",
     rates(schedules.PiecewiseConstantDecay(
         [4, 19], [RATE, double(0.05), double(0.01)]),
           [0, 4, 5, 6, 19, 20, 1000])),
    ("exponential { decay_steps: 7 decay_rate: 0.9 }",
     rates(schedules.ExponentialDecay(RATE, 7, double(0.9)),
           [0, 1, 6, 7, 8, 21, 1000])),
    ("exponential { decay_steps: 7 decay_rate: 0.9 staircase: true }",
     rates(schedules.ExponentialDecay(RATE, 7, double(0.9), True),
           [0, 1, 6, 7, 8, 20, 21, 1000])),
    ("polynomial { decay_steps: 10 end_learning_rate: 0.02 }",
     rates(schedules.PolynomialDecay(RATE, 10, double(0.02)),
           [0, 1, 9, 10, 11, 1000])),
    ("polynomial { decay_steps: 10 end_learning_rate: 0.2 power: 0.5 }",
     rates(schedules.PolynomialDecay(RATE, 10, double(0.2), 0.5),
           [0, 1, 9, 10, 11, 1000])),
    ("polynomial { decay_steps: 10 end_learning_rate: 0.02 cycle: true }",
     rates(schedules.PolynomialDecay(RATE, 10, double(0.02), cycle=True),
           [0, 1, 9, 10, 11, 20, 21, 30, 1001])),
    ("polynomial { decay_steps: 10 power: 2 cycle: true }",
     rates(schedules.PolynomialDecay(RATE, 10, double(0), 2, True),
           [0, 1, 9, 11, 19, 21, 1001])),
    ("cosine { decay_steps: 10 }",
     rates(schedules.CosineDecay(RATE, 10), [0, 1, 5, 9, 10, 11, 1000])),
    ("cosine { decay_steps: 10 alpha: 0.1 } warmup_steps: 4"
     " warmup_start_rate: 0.02",
     rates(schedules.CosineDecay(double(0.02), 10, double(0.1),
                                 warmup_target=RATE, warmup_steps=4),
           [0, 1, 3, 4, 5, 9, 13, 14, 15, 1000])),
]


def braces(parts):
    return "{" + ", ".join(parts) + "}"


def floats(row):
    return braces(str(x) + "f" for x in row)


print(f"""\
// Generated by tests/reference/optimizers.py with TensorFlow {tf.__version__} (Keras
// {keras.__version__}), Optax {optax.__version__} on JAX {jax.__version__}, and \
PyTorch {torch.__version__.split("+")[0]}: see there.
#ifndef HOLDFAST_TESTS_REFERENCE_OPTIMIZER_VALUES_H_
#define HOLDFAST_TESTS_REFERENCE_OPTIMIZER_VALUES_H_

#include <array>
#include <cstddef>
#include <cstdint>

// clang-format off
namespace holdfast {{

// One number for each of the elements that are trained.
using ReferenceElements = std::array<float, {START.size}>;

inline constexpr ReferenceElements kReferenceStart = {floats(START)};

inline constexpr size_t kReferenceSteps = {len(GRADIENTS)};

inline constexpr ReferenceElements kReferenceGradients[kReferenceSteps] = {{""")
for row in GRADIENTS:
    print(f"    {floats(row)},")
print("""\
};

// The values after each step.
struct ReferenceRun {
  // A textproto of proto::Optimizer.
  const char* config;
  ReferenceElements values[kReferenceSteps];
};

inline constexpr ReferenceRun kReferenceRuns[] = {""")
for config, values in RUNS:
    print(f'    {{"{config}",\n     {{')
    for row in values:
        print(f"         {floats(row)},")
    print("     }},")
print(f"""\
}};

// The learning rates at some steps; the base is 0.1f.
struct ReferenceSchedule {{
  // A textproto of proto::LearningRateSchedule.
  const char* config;
  // The number of `rates` that are given.
  size_t count;
  struct At {{
    uint64_t step;
    double rate;
  }};
  At rates[{max(len(values) for _, values in SCHEDULES)}];
}};

inline constexpr ReferenceSchedule kReferenceSchedules[] = {{""")
for config, values in SCHEDULES:
    print(f'    {{"{config}", {len(values)},\n     {{')
    for step, rate in values:
        print(f"         {{{step}, {rate}}},")
    print("     }},")
print("""\
};

}  // namespace holdfast
// clang-format on

#endif  // HOLDFAST_TESTS_REFERENCE_OPTIMIZER_VALUES_H_""")
