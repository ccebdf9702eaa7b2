# SPDX-License-Identifier: Apache-2.0

"""Measures how fast tf.data parses the files of tfrecord_benchmark.cc on one core; compare with the
column CPU of that benchmark.

    taskset -c 0 PYTHON common/data/tfrecord_benchmark.py [FOLDER]

with a Python that has TensorFlow: tests/python/environment.sh tests/python/requirements.txt.
"""

import os
import sys
import time

os.environ["TF_CPP_MIN_LOG_LEVEL"] = "3"
import tensorflow as tf

tf.config.threading.set_intra_op_parallelism_threads(1)
tf.config.threading.set_inter_op_parallelism_threads(1)

BATCH = 100


def label():
    return {"label": tf.io.FixedLenFeature([], tf.int64)}


def images(parsed):
    return tf.cast(tf.io.decode_raw(parsed["image"], tf.uint8), tf.float32) * (1 / 255)


def photographs(parsed):
    pixels = tf.map_fn(
        lambda file: tf.io.decode_jpeg(file, channels=3, dct_method="INTEGER_ACCURATE"),
        tf.reshape(parsed["image"], [-1]),
        fn_output_signature=tf.uint8,
    )
    return tf.cast(pixels, tf.float32) * (1 / 255)


def tables(parsed):
    return tf.stack([parsed[f"x{i}"] for i in range(20)], axis=-1)


KINDS = {
    "images": ({"image": tf.io.FixedLenFeature([], tf.string)}, images),
    "tables": ({f"x{i}": tf.io.FixedLenFeature([], tf.float32) for i in range(20)}, tables),
    "photographs": ({"image": tf.io.FixedLenFeature([], tf.string)}, photographs),
    "vectors": ({"x": tf.io.FixedLenFeature([784], tf.float32)}, lambda parsed: parsed["x"]),
}


def rate(dataset, rows_each):
    """Rows a second of the processor's time: the best of three passes."""
    options = tf.data.Options()
    options.threading.private_threadpool_size = 1
    dataset = dataset.with_options(options)
    best = 0.0
    for _ in range(3):
        begin = time.process_time()
        count = sum(1 for _ in dataset)
        best = max(best, count * rows_each / (time.process_time() - begin))
    return best


def main():
    folder = sys.argv[1] if len(sys.argv) > 1 else os.environ.get("TMPDIR", "/tmp")
    for kind, (features, make_input) in KINDS.items():
        features = {**features, **label()}

        def parse_one(record):
            parsed = tf.io.parse_single_example(record, features)
            return make_input(parsed), parsed["label"]

        def parse_batch(records):
            parsed = tf.io.parse_example(records, features)
            return make_input(parsed), parsed["label"]

        records = tf.data.TFRecordDataset(f"{folder}/benchmark_{kind}.tfrecord")
        one = rate(records.map(parse_one).batch(BATCH), BATCH)
        batch = rate(records.batch(BATCH).map(parse_batch), BATCH)
        print(f"{kind}: {one:,.0f} rows/s by parse_single_example, {batch:,.0f} by parse_example")


if __name__ == "__main__":
    main()
