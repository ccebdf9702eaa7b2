# SPDX-License-Identifier: Apache-2.0

"""The program of overlays/script: softmax regression on digits that the wheel draws."""

import numpy as np

import holdfast
from holdfast.examples import digits

pixels, labels = digits.make(6000, seed=1)
x = pixels * np.float32(1 / 255)

with holdfast.connect() as cluster:
    cluster.declare(
        {"kernel": holdfast.Variable((x.shape[1], 10)), "bias": holdfast.Variable(10)},
        optimizer=holdfast.Sgd(learning_rate=0.1),
        steps=2000,
        checkpoints=holdfast.Checkpoints(every_steps=500),
    )
    for batch in cluster.batches():
        rows = holdfast.batch_indices(batch, len(x), 100, seed=1)
        kernel, bias = cluster.pull().values()
        p = np.exp(x[rows] @ kernel + bias)
        p /= p.sum(axis=1, keepdims=True)
        loss = -np.log(p[np.arange(100), labels[rows]]).mean()
        p[np.arange(100), labels[rows]] -= 1
        cluster.push([x[rows].T @ p / 100, p.mean(axis=0)], loss=loss, examples=100)
    values = cluster.pull()

scores = x @ values["kernel"] + values["bias"]
print("accuracy", np.mean(scores.argmax(axis=1) == labels), "digest", holdfast.digest(values))
