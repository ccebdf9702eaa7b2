# SPDX-License-Identifier: Apache-2.0

"""TensorFlow's classic parameter server: train.Server and replica_device_setter.

Synchronous training uses SyncReplicasOptimizer.
"""

import argparse
import os

import harness

PEER = "tensorflow"


def start_server(flags):
    """The server of this task, and TensorFlow's version 1 API."""
    os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")
    import tensorflow.compat.v1 as tf

    tf.disable_v2_behavior()
    tf.logging.set_verbosity(tf.logging.ERROR)
    cluster = tf.train.ClusterSpec({
        "ps": [f"localhost:{flags.ps_port}"],
        "worker": [f"localhost:{port}" for port in flags.worker_ports.split(",")],
    })
    config = tf.ConfigProto()
    if flags.role == "worker":
        config.intra_op_parallelism_threads = 1
        # A worker communicates only with the ps.
        config.device_filters.extend(["/job:ps", f"/job:worker/task:{flags.index}"])
    return tf, cluster, config, tf.train.Server(
        cluster, job_name=flags.role, task_index=flags.index, config=config)


def wire(flags):
    tf, _, config, server = start_server(flags)
    operations = []
    for name, size in harness.SIZES.items():
        with tf.device("/job:ps/task:0"):
            values = tf.get_variable("values_" + name, [size // 4])
        with tf.device("/job:worker/task:0"):
            # A variable, because a constant would be folded, and placed on the ps.
            gradient = tf.get_variable("gradient_" + name, [size // 4])
        push = tf.raw_ops.ApplyGradientDescent(var=values, alpha=0.001, delta=gradient)
        with tf.device("/job:worker/task:0"):
            pull = tf.identity(values)
        operations.append((name, push.op, pull.op))
    with tf.Session(server.target, config=config) as session:
        session.run(tf.global_variables_initializer())
        for name, push, pull in operations:
            push, pull = session.make_callable(push), session.make_callable(pull)
            harness.report_wire(PEER, "push", name, harness.median_seconds(push))
            harness.report_wire(PEER, "pull", name, harness.median_seconds(pull))


def train(flags):
    tf, cluster, config, server = start_server(flags)
    model_name, mode = flags.measure.split("_")
    widths, learning_rate, momentum = harness.MODELS[model_name]
    with tf.device(tf.train.replica_device_setter(
            cluster=cluster, worker_device=f"/job:worker/task:{flags.index}")):
        global_step = tf.train.get_or_create_global_step()
        images = tf.placeholder(tf.float32, [harness.BATCH, widths[0]])
        labels = tf.placeholder(tf.int32, [harness.BATCH])
        activations = images
        for layer, (inputs, outputs) in enumerate(zip(widths, widths[1:])):
            if layer > 0:
                activations = tf.nn.relu(activations)
            kernel = tf.get_variable(f"kernel{layer}", [inputs, outputs])
            bias = tf.get_variable(f"bias{layer}", [outputs], initializer=tf.zeros_initializer())
            activations = tf.nn.bias_add(tf.matmul(activations, kernel), bias)
        loss = tf.reduce_mean(
            tf.nn.sparse_softmax_cross_entropy_with_logits(labels=labels, logits=activations))
        if momentum:
            optimizer = tf.train.MomentumOptimizer(learning_rate, momentum)
        else:
            optimizer = tf.train.GradientDescentOptimizer(learning_rate)
        hooks = []
        if mode == "sync":
            optimizer = tf.train.SyncReplicasOptimizer(
                optimizer, replicas_to_aggregate=harness.WORKERS,
                total_num_replicas=harness.WORKERS)
            hooks.append(optimizer.make_session_run_hook(is_chief=flags.index == 0))
        update = optimizer.minimize(loss, global_step=global_step)
    steps = harness.Steps(flags.steps)
    with tf.train.MonitoredTrainingSession(
            server.target, is_chief=flags.index == 0, hooks=hooks, config=config,
            save_checkpoint_secs=None, save_summaries_steps=None, save_summaries_secs=None,
            log_step_count_steps=None) as session:
        for batch_images, batch_labels in harness.batches(flags.index):
            session.run(update, {images: batch_images, labels: batch_labels})
            steps.add(flags.index)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--measures", default="wire,softmax_sync,softmax_async,mlp_sync,mlp_async")
    parser.add_argument("--role")
    parser.add_argument("--index", type=int)
    parser.add_argument("--ps_port")
    parser.add_argument("--worker_ports")
    parser.add_argument("--measure")
    parser.add_argument("--steps")
    flags = parser.parse_args()
    if flags.role == "ps":
        start_server(flags)[-1].join()
    elif flags.role:
        (wire if flags.measure == "wire" else train)(flags)
    else:
        for measure in flags.measures.split(","):
            workers = 1 if measure == "wire" else harness.WORKERS
            ports = {
                "ps_port": harness.free_port(),
                "worker_ports": ",".join(str(harness.free_port()) for _ in range(workers)),
            }
            with harness.steps_file() as steps, harness.Processes() as processes:
                processes.start("ps", **ports)
                started = [
                    processes.start("worker", index, measure=measure, steps=steps, **ports)
                    for index in range(workers)]
                if measure == "wire":
                    processes.wait(started[0])
                else:
                    harness.report_training(PEER, measure, processes, steps)


if __name__ == "__main__":
    main()
