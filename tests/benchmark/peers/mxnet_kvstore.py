# SPDX-License-Identifier: Apache-2.0

"""MXNet's distributed kvstore (ps-lite over ZeroMQ), with the optimizer on the server."""

import argparse

import harness

PEER = "mxnet"


def wire():
    import mxnet as mx

    store = mx.kv.create("dist_async")
    store.set_optimizer(mx.optimizer.SGD(learning_rate=0.001))
    for key, (name, size) in enumerate(harness.SIZES.items()):
        values = mx.nd.ones((size // 4,))
        gradient = mx.nd.ones((size // 4,))
        store.init(key, values)

        def push():
            store.push(key, gradient)
            mx.nd.waitall()

        def pull():
            store.pull(key, out=values)
            values.wait_to_read()

        harness.report_wire(PEER, "push", name, harness.median_seconds(push))
        harness.report_wire(PEER, "pull", name, harness.median_seconds(pull))


def train(model_name, mode, index, path):
    import mxnet as mx

    widths, learning_rate, momentum = harness.MODELS[model_name]
    net = mx.gluon.nn.HybridSequential()
    for inputs, outputs in zip(widths[:-2], widths[1:]):
        net.add(mx.gluon.nn.Dense(outputs, in_units=inputs, activation="relu"))
    net.add(mx.gluon.nn.Dense(widths[-1], in_units=widths[-2]))
    net.initialize(mx.init.Xavier())
    net.hybridize(static_alloc=True, static_shape=True)
    loss_of = mx.gluon.loss.SoftmaxCrossEntropyLoss()
    loss_of.hybridize(static_alloc=True, static_shape=True)
    store = mx.kv.create("dist_" + mode)
    trainer = mx.gluon.Trainer(
        net.collect_params(),
        mx.optimizer.SGD(learning_rate=learning_rate, momentum=momentum),
        kvstore=store,
        update_on_kvstore=True)
    replicas = harness.WORKERS if mode == "sync" else 1
    steps = harness.Steps(path)
    for images, labels in harness.batches(index):
        images, labels = mx.nd.array(images), mx.nd.array(labels)
        with mx.autograd.record():
            loss = loss_of(net(images), labels)
        loss.backward()
        trainer.step(harness.BATCH * replicas)
        # Operations are asynchronous: without this, the queue would grow, and steps would be
        # counted before they are made.
        loss.wait_to_read()
        steps.add(index)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--measures", default="wire,softmax_sync,softmax_async,mlp_sync,mlp_async")
    parser.add_argument("--role")
    parser.add_argument("--index", type=int)
    parser.add_argument("--measure")
    parser.add_argument("--steps")
    flags = parser.parse_args()
    if flags.role in ("scheduler", "server"):
        import mxnet  # Serves until it is killed.
        return
    if flags.role:
        if flags.measure == "wire":
            wire()
        else:
            model, mode = flags.measure.split("_")
            train(model, mode, flags.index, flags.steps)
        return
    for measure in flags.measures.split(","):
        workers = 1 if measure == "wire" else harness.WORKERS
        environment = {
            "DMLC_PS_ROOT_URI": "127.0.0.1",
            "DMLC_PS_ROOT_PORT": str(harness.free_port()),
            "DMLC_NUM_SERVER": "1",
            "DMLC_NUM_WORKER": str(workers),
            "DMLC_INTERFACE": "lo",
            "DMLC_NODE_HOST": "127.0.0.1",
        }
        with harness.steps_file() as steps, harness.Processes() as processes:
            threads = {"OMP_NUM_THREADS": "1", "MXNET_CPU_WORKER_NTHREADS": "1"}
            for role in ("scheduler", "server"):
                processes.start(role, environment={**environment, "DMLC_ROLE": role})
            started = [
                processes.start("worker", index, {**environment, **threads, "DMLC_ROLE": "worker"},
                                measure=measure, steps=steps)
                for index in range(workers)]
            if measure == "wire":
                processes.wait(started[0])
            else:
                harness.report_training(PEER, measure, processes, steps)


if __name__ == "__main__":
    main()
