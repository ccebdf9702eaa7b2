# SPDX-License-Identifier: Apache-2.0

"""Trains a Gluon network on images of digits in MXNet, with the kvstore of Holdfast.

    holdfast local --ps=2 --workers=2 --on_failure=restart -- python examples/mxnet/mnist.py
"""

import holdfast_kvstore  # registers the kvstore
import mxnet as mx
import numpy as np
from mxnet import autograd, gluon

import holdfast
from holdfast.examples.mnist import load

BATCH = 100


def main():
    x, y, test_x, test_y = load("digits")
    mx.random.seed(1)
    net = gluon.nn.HybridSequential()
    net.add(gluon.nn.Dense(64, activation="relu", in_units=x.shape[1]))
    net.add(gluon.nn.Dense(10, in_units=64))
    net.initialize(mx.init.Xavier())
    net.hybridize()
    loss_of = gluon.loss.SoftmaxCrossEntropyLoss()
    store = mx.kv.create("holdfast")
    sgd = {"learning_rate": 0.1, "momentum": 0.9}
    trainer = gluon.Trainer(net.collect_params(), "sgd", sgd, kvstore=store)
    store.declare(net.collect_params(), trainer.optimizer, steps=500)
    for batch in store.batches():
        rows = holdfast.batch_indices(batch, len(x), BATCH, seed=1)
        with autograd.record():
            loss = loss_of(net(mx.nd.array(x[rows])), mx.nd.array(y[rows]))
        loss.backward()
        store.loss = loss.mean()
        trainer.step(BATCH)
    if store.rank == 0:
        accuracy = np.mean(net(mx.nd.array(test_x)).asnumpy().argmax(axis=1) == test_y)
        print(f"accuracy {accuracy:.4f} on {len(test_y)} images")
        print("digest", holdfast.digest(store.cluster.pull()))


if __name__ == "__main__":
    main()
