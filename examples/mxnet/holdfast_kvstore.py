# SPDX-License-Identifier: Apache-2.0

"""A kvstore for Gluon's Trainer whose values are held by a Holdfast cluster.

    store = mx.kv.create("holdfast")
    trainer = gluon.Trainer(net.collect_params(), "sgd", {"learning_rate": 0.1}, kvstore=store)
    store.declare(net.collect_params(), trainer.optimizer, steps=1000)
    for batch in store.batches():
        with autograd.record():
            loss = loss_of(net(x), y)
        loss.backward()
        store.loss = loss.mean()
        trainer.step(len(x))

The cluster applies the optimizer, as MXNet's dist_sync and dist_async do with
update_on_kvstore: the n-th parameter that has a gradient is pushed by the n-th call of
pushpull within a step, and the last of these calls completes the step and assigns the next
values to all parameters.
"""

import mxnet as mx
import numpy as np

import holdfast


def rule_of(optimizer):
    """The Holdfast optimizer with the same formula as an MXNet optimizer.

    Learning rates are fixed when the job is declared, so schedulers are refused.
    """
    if optimizer.lr_scheduler is not None or optimizer.clip_gradient is not None:
        raise ValueError("declare schedules and clipping with the job, not in the optimizer")
    both = {"learning_rate": optimizer.lr, "weight_decay": optimizer.wd}
    if type(optimizer) is mx.optimizer.SGD:
        if optimizer.momentum == 0:
            return holdfast.Sgd(**both)
        return holdfast.Momentum(momentum=optimizer.momentum, **both)
    if type(optimizer) is mx.optimizer.Adam:
        return holdfast.Adam(
            beta1=optimizer.beta1, beta2=optimizer.beta2, epsilon=optimizer.epsilon, **both
        )
    raise TypeError(f"Holdfast has no rule for {type(optimizer).__name__}: take SGD or Adam")


@mx.kvstore.KVStoreBase.register
class Holdfast(mx.kvstore.KVStoreBase):
    """mx.kv.create("holdfast"); TF_CONFIG describes the cluster.

    Attributes:
        cluster: The holdfast.Cluster.
        loss: Mean loss of the batch; must be set before each step.
    """

    def __init__(self, cluster=None):
        self.cluster = holdfast.connect() if cluster is None else cluster
        self.loss = 0.0
        self._optimizer = None
        self._params = []
        self._gradients = {}

    def declare(self, params, optimizer, steps, **options):
        """Declares the job, and assigns the cluster's values to the parameters.

        Args:
            params: net.collect_params(), as for the Trainer. Parameters without a gradient,
                such as the moving averages of BatchNorm, stay local to this worker.
            optimizer: The Trainer's optimizer.
            steps, options: As for holdfast.Cluster.declare.
        """
        self._optimizer = optimizer
        # Keys are indices in the order of names, as in the Trainer.
        self._params = [params[name] for name in sorted(params.keys())]
        rule = rule_of(optimizer)
        self._keys = {
            key: param.name for key, param in enumerate(self._params) if param.grad_req != "null"
        }
        variables = {}
        for key, name in self._keys.items():
            dtype = np.dtype(self._params[key].dtype)
            if dtype != np.float32:
                raise TypeError(f"{name} has dtype {dtype}, not float32")
            variables[name] = self._params[key].list_data()[0].asnumpy()
        self.cluster.declare(variables, optimizer=rule, steps=steps, **options)

    def batches(self):
        """The index of each batch for this worker to compute; see Cluster.batches."""
        for batch in self.cluster.batches():
            self._give_values()
            yield batch
        self._give_values()

    def _give_values(self):
        values = self.cluster.pull()
        for key, name in self._keys.items():
            for data in self._params[key].list_data():
                data[:] = values[name]

    # The methods that Gluon's Trainer calls.

    def set_optimizer(self, optimizer):
        if optimizer is not self._optimizer:
            raise ValueError("the Trainer's optimizer is not the one that was declared")

    def broadcast(self, key, value, out, priority=0):
        """Nothing to do: `batches` has already assigned the cluster's values."""

    def pushpull(self, key, value, out=None, priority=0):
        if key in self._gradients or key not in self._keys:
            raise ValueError(f"key {key}: a step has one gradient of each declared parameter")
        of_devices = value if isinstance(value, list) else [value]
        gradient = sum(one.asnumpy() for one in of_devices)
        # Gluon's losses are summed over the batch, and Trainer.step divides by its size.
        self._gradients[key] = np.float32(self._optimizer.rescale_grad) * gradient
        if len(self._gradients) == len(self._keys):
            gradients = [self._gradients[key] for key in self._keys]
            self._gradients = {}
            loss = self.loss.asscalar() if isinstance(self.loss, mx.nd.NDArray) else self.loss
            examples = max(1, round(1 / self._optimizer.rescale_grad))
            self.cluster.push(gradients, loss=float(loss), examples=examples)
            self._give_values()

    @staticmethod
    def is_capable(capability):
        return capability.lower() == mx.kvstore.KVStoreBase.OPTIMIZER

    @property
    def type(self):
        return "holdfast"

    @property
    def rank(self):
        return self.cluster.replica

    @property
    def num_workers(self):
        return self.cluster.replicas
