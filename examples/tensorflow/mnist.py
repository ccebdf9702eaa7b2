# SPDX-License-Identifier: Apache-2.0

"""Trains a Keras model on images of digits, with a custom loop around tf.GradientTape.

    holdfast local --ps=2 --workers=2 --on_failure=restart -- python examples/tensorflow/mnist.py
"""

import numpy as np
import tensorflow as tf

import holdfast
from holdfast.examples.mnist import load

BATCH = 100


def main() -> None:
    x, y, test_x, test_y = load("digits")
    tf.keras.utils.set_random_seed(1)  # every worker declares the same first values
    model = tf.keras.Sequential(
        [
            tf.keras.Input((x.shape[1],)),
            tf.keras.layers.Dense(64, activation="relu"),
            tf.keras.layers.Dense(10),
        ]
    )
    variables = model.trainable_variables
    cross_entropy = tf.keras.losses.SparseCategoricalCrossentropy(from_logits=True)

    @tf.function
    def gradients_of(x, y):
        with tf.GradientTape() as tape:
            loss = cross_entropy(y, model(x, training=True))
        return loss, tape.gradient(loss, variables)

    def take(values):
        for variable in variables:
            variable.assign(values[variable.path])

    with holdfast.connect() as cluster:
        cluster.declare(
            {variable.path: variable.numpy() for variable in variables},
            optimizer=holdfast.Adam(learning_rate=0.003),
            steps=500,
        )
        for batch in cluster.batches():
            rows = holdfast.batch_indices(batch, len(x), BATCH, seed=1)
            # TensorFlow may keep the memory of an array that is assigned, so these are copies.
            take(cluster.pull(copy=True))
            loss, gradients = gradients_of(x[rows], y[rows])
            cluster.push([g.numpy() for g in gradients], loss=float(loss), examples=BATCH)
        if cluster.is_chief:
            values = cluster.pull(copy=True)
            take(values)
            accuracy = np.mean(model(test_x).numpy().argmax(axis=1) == test_y)
            print(f"accuracy {accuracy:.4f} on {len(test_y)} images")
            print("digest", holdfast.digest(values))


if __name__ == "__main__":
    main()
