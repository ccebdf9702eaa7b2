# SPDX-License-Identifier: Apache-2.0

"""A worker in Python that uses only proto/: any language can implement one like this.

The stubs come from gRPC's own generator, for instance

    pip install grpcio-tools
    python -m grpc_tools.protoc -I. --python_out=stubs --grpc_python_out=stubs \\
        proto/rules.proto proto/training.proto proto/cluster.proto \\
        proto/trace.proto proto/coordinator.proto proto/checkpoint.proto \\
        proto/shard.proto

The protocol is described in docs/protocol/life_of_a_step.md, docs/protocol/asynchronous.md
and docs/protocol/recovery.md, whose step labels are cited below; docs/operating/compatibility.md
says what such a client may rely on. The worker survives the loss of any ps: when the
coordinator has forgotten its session, it registers again; when a generation is over, it drops
what is under way, pulls, and continues from there. It fits y = x W by least squares on examples
that follow from the number of the batch, and counts pushes: the gradient of the variable
"count" is -1 in every element, and its learning rate is 1. At the end it prints one line of
JSON with its verdicts, stalenesses and final values.

    PYTHONPATH=stubs python3 python_worker.py --ps_hosts=localhost:2222,localhost:2223 \\
        --num_workers=2 --task_index=0 --mode=asynchronous --pushes=20
"""

import argparse
import array
import json
import os
import random
import threading
import time

import grpc

from proto import (cluster_pb2, coordinator_pb2, coordinator_pb2_grpc, shard_pb2,
                   shard_pb2_grpc, training_pb2)

PROTOCOL_VERSION = 8
WAIT_MS = 5000
REGISTER_WAIT_MS = 2000
# How long the cluster may be unreachable, or in recovery, before the worker gives up.
PATIENCE_SECONDS = 60
ROWS, COLUMNS = 5, 3  # of W
VARIABLES = {"w": [ROWS, COLUMNS], "count": [4]}
BATCH_SIZE = 4
OPTIONS = [("grpc.max_receive_message_length", 16 << 20),
           ("grpc.max_send_message_length", 16 << 20),
           # Reconnects soon to a ps that is back.
           ("grpc.initial_reconnect_backoff_ms", 100),
           ("grpc.max_reconnect_backoff_ms", 1000)]


def size_of(name):
    size = 1
    for dimension in VARIABLES[name]:
        size *= dimension
    return size


def batch(number):
    """The examples of a batch: [(x, y)], the same wherever it is computed."""
    rng = random.Random(number)
    truth = [[(r - c) / 4 for c in range(COLUMNS)] for r in range(ROWS)]
    examples = []
    for _ in range(BATCH_SIZE):
        x = [rng.uniform(-1, 1) for _ in range(ROWS)]
        y = [sum(x[r] * truth[r][c] for r in range(ROWS)) for c in range(COLUMNS)]
        examples.append((x, y))
    return examples


def gradients(values, number):
    """Returns ({variable: gradient of the mean loss, row-major}, mean loss)."""
    w = values["w"]
    gradient = [0.0] * size_of("w")
    loss = 0.0
    for x, y in batch(number):
        for c in range(COLUMNS):
            error = sum(x[r] * w[r * COLUMNS + c] for r in range(ROWS)) - y[c]
            loss += error * error / BATCH_SIZE
            for r in range(ROWS):
                gradient[r * COLUMNS + c] += 2 * error * x[r] / BATCH_SIZE
    return {"w": gradient, "count": [-1.0] * size_of("count")}, loss


def declaration(args):
    """The declaration: W is trained by SGD, "count" by SGD with rate 1."""
    result = cluster_pb2.Declaration(seed=7)
    for optimizer, name in enumerate(VARIABLES):
        variable = result.variables.add(name=name, shape=VARIABLES[name],
                                        dtype=training_pb2.FLOAT32, optimizer=optimizer)
        variable.initializer.zeros.SetInParent()
    for rate in (0.1, 1.0):
        result.optimizers.add(learning_rate=rate).sgd.SetInParent()
    # Each variable is split by rows over two ps.
    result.partitioner.fixed_shards.shards = 2
    result.total_steps = args.pushes
    # Takes effect if the ps have a checkpoint directory.
    result.checkpoints.every_steps = 5
    if args.mode == "asynchronous":
        result.consistency.asynchronous.SetInParent()
        if args.staleness_bound >= 0:
            result.consistency.asynchronous.staleness_bound = args.staleness_bound
    else:
        result.consistency.synchronous.SetInParent()
    return result


def connect(args, ps, address):
    """A channel to a ps; with --tls_dir, only to that very ps."""
    if not args.tls_dir:
        return grpc.insecure_channel(address, OPTIONS)

    def read(name):
        with open(os.path.join(args.tls_dir, name), "rb") as file:
            return file.read()

    credentials = grpc.ssl_channel_credentials(
        root_certificates=read("ca.crt"), private_key=read("tls.key"),
        certificate_chain=read("tls.crt"))
    # The name in its certificate, which does not depend on its address.
    name = "ps-%d.%s" % (ps, args.training)
    return grpc.secure_channel(address, credentials,
                               [*OPTIONS, ("grpc.ssl_target_name_override", name)])


class Superseded(Exception):
    """The generation, or the session, in which a request was made is over."""


class Session:
    """The task's place in the cluster: its incarnation, its lease, and the newest
    generation, kept by a thread of its own [L1, L2]."""

    def __init__(self, args, coordinator):
        self.args = args
        self.coordinator = coordinator
        self.nonce = random.SystemRandom().randrange(1, 1 << 63)
        self.lock = threading.Lock()
        self.sender = cluster_pb2.Sender(
            task=cluster_pb2.TaskId(job="worker", index=args.task_index))
        self.failure = None  # why the worker cannot continue
        self.register()
        self.closed = threading.Event()
        self.thread = threading.Thread(target=self.keep, daemon=True)
        self.thread.start()

    def register(self):
        """The same nonce gets the same incarnation; a coordinator that was restarted
        gives a new one, and is told which generation the caller comes from."""
        self.sender.incarnation = 0
        request = coordinator_pb2.RegisterRequest(
            sender=self.sender, nonce=self.nonce, protocol_version=PROTOCOL_VERSION,
            process="a worker in Python", job_digest="python", data_digest="python",
            num_ps=len(self.args.ps_hosts.split(",")), num_workers=self.args.num_workers,
            wait_ms=REGISTER_WAIT_MS)
        while True:
            response = repeat(self.coordinator.Register, request)
            if response.incarnation != 0:  # 0: not yet, ask again
                break
        self.sender.incarnation = response.incarnation
        self.sender.generation = response.generation
        self.renew_every = response.lease_ms / 3000

    def renew(self):
        """Renews the lease, and learns the newest generation."""
        with self.lock:
            try:
                response = self.coordinator.RenewLease(
                    coordinator_pb2.RenewLeaseRequest(sender=self.sender),
                    timeout=self.renew_every)
            except grpc.RpcError as error:
                if error.code() == grpc.StatusCode.NOT_FOUND:
                    try:
                        self.register()
                    except grpc.RpcError as refused:
                        self.failure = refused.details()
                elif error.code() == grpc.StatusCode.ABORTED:
                    self.failure = error.details()
                return  # after other errors the next renewal may arrive
            self.sender.generation = response.generation
            if response.state.phase == cluster_pb2.FAILED:
                self.failure = response.state.reason

    def keep(self):
        while not self.closed.wait(self.renew_every):
            self.renew()

    def newest(self):
        """The sender of requests from here on, with the newest generation."""
        with self.lock:
            if self.failure:
                raise RuntimeError(self.failure)
            sender = cluster_pb2.Sender()
            sender.CopyFrom(self.sender)
            return sender

    def close(self):
        self.closed.set()
        self.thread.join()


def repeat(method, request):
    """Makes a call, and repeats it if the network lost it: every call of the protocol may
    be repeated. A ps that is unreachable, or out of room, is asked again after a pause."""
    give_up = time.monotonic() + PATIENCE_SECONDS
    pause = 0.01
    while True:
        try:
            return method(request, timeout=WAIT_MS / 1000 + 10)
        except grpc.RpcError as error:
            if (error.code() not in (grpc.StatusCode.UNAVAILABLE,
                                     grpc.StatusCode.DEADLINE_EXCEEDED,
                                     grpc.StatusCode.RESOURCE_EXHAUSTED) or
                    time.monotonic() > give_up):
                raise
        time.sleep(pause)
        pause = min(2 * pause, 1)


class Worker:
    """One task's conversation with the cluster."""

    def __init__(self, args):
        self.args = args
        self.channels = [connect(args, ps, address)
                         for ps, address in enumerate(args.ps_hosts.split(","))]
        self.coordinator = coordinator_pb2_grpc.CoordinatorStub(self.channels[0])
        self.shards = [shard_pb2_grpc.ShardStub(channel) for channel in self.channels]
        self.session = Session(args, self.coordinator)
        self.sender = cluster_pb2.Sender()  # of the requests under way
        self.accepted = 0
        self.stale = 0
        self.staleness = []

    def call(self, method, request, **fields):
        """Makes a call as the current sender. Raises Superseded when that sender is outdated."""
        request.sender.CopyFrom(self.sender)
        for name, value in fields.items():
            setattr(request, name, value)
        try:
            response = repeat(method, request)
        except grpc.RpcError as error:
            if error.code() in (grpc.StatusCode.ABORTED, grpc.StatusCode.NOT_FOUND):
                raise Superseded(error.details()) from error
            raise
        verdict = getattr(response, "verdict", cluster_pb2.VERDICT_UNSPECIFIED)
        if verdict == cluster_pb2.ABORTED:
            raise Superseded("told ABORTED")
        if verdict == cluster_pb2.FENCED:
            raise RuntimeError("fenced")
        state = getattr(response, "state", None)
        if state is not None and state.phase == cluster_pb2.FAILED:
            raise RuntimeError(state.reason)
        return response

    def run(self):
        """Trains to the end, through any number of generations. Returns (values, versions)."""
        train = (self.train_asynchronously if self.args.mode == "asynchronous" else
                 self.train_synchronously)
        give_up = None
        while True:
            newest = self.session.newest()
            if newest != self.sender:  # [G6] Sequences begin again.
                self.sender = newest
                self.sequence = self.acked_through = 0
                give_up = time.monotonic() + PATIENCE_SECONDS
            try:
                self.await_variables()
                return train()
            except Superseded as why:
                if time.monotonic() > give_up:
                    raise TimeoutError(str(why)) from why
            time.sleep(0.05)
            self.session.renew()

    def await_variables(self):
        """Declares the variables, which may be repeated, and waits until they exist."""
        request = coordinator_pb2.DeclareRequest(declaration=declaration(self.args))
        self.call(self.coordinator.Declare, request)
        while True:
            placement = self.call(self.coordinator.GetPlacement,
                                  coordinator_pb2.GetPlacementRequest(), wait_ms=WAIT_MS)
            if placement.ready:
                break
        self.slices = [[] for _ in self.shards]
        for piece in placement.slices:
            self.slices[piece.ps].append(piece)
        self.holders = [ps for ps, slices in enumerate(self.slices) if slices]

    def leave(self):
        self.session.close()
        repeat(self.coordinator.Leave,
               coordinator_pb2.LeaveRequest(sender=self.session.sender))

    def pull(self, min_version):
        """Returns (values by variable, version by ps). In a synchronous job, a shard that is
        behind is asked again [R7]."""
        versions = [min_version] * len(self.shards)
        values = {name: [0.0] * size_of(name) for name in VARIABLES}
        behind = set(range(len(self.shards)))
        while behind:
            for ps in sorted(behind):
                request = shard_pb2.PullRequest(wait_ms=WAIT_MS)
                request.min_version = max(min_version, versions[ps])
                for piece in self.slices[ps]:
                    request.ranges.add(variable=piece.variable, begin=piece.begin,
                                       size=piece.size)
                response = self.call(self.shards[ps].Pull, request)
                if response.version < request.min_version:
                    continue
                versions[ps] = response.version
                self.take_tensors(response.tensors, values)
                behind.discard(ps)
            if self.args.mode == "synchronous" and not behind:
                newest = max(versions)
                behind = {ps for ps, version in enumerate(versions) if version < newest}
                for ps in behind:
                    versions[ps] = newest
        return values, versions

    def push(self, sequence, gradient, versions):
        """[2, A2] Sends one part to each shard that holds values. Returns when each shard has
        acknowledged: their receipts, by ps, which prove that to the others."""
        receipts = [0] * len(self.shards)
        for ps in self.holders:
            request = shard_pb2.PushRequest(sequence=sequence, step=versions[ps], part=0,
                                            num_parts=1, acked_through=self.acked_through)
            self.add_tensors(ps, gradient, request)
            receipts[ps] = self.call(self.shards[ps].Push, request).receipt
        return receipts

    def add_tensors(self, ps, gradient, request):
        for piece in self.slices[ps]:
            values = gradient[piece.variable][piece.begin:piece.begin + piece.size]
            request.tensors.add(variable=piece.variable, shape=VARIABLES[piece.variable],
                                dtype=training_pb2.FLOAT32, begin=piece.begin,
                                data=array.array("f", values).tobytes())

    def push_pull(self, gradient, versions, **outcome):
        """Pushes, and gets the verdict and the next values, in one call to the only ps. The same
        call is repeated until both are there: every call may be repeated."""
        request = shard_pb2.PushPullRequest(
            sequence=self.sequence, step=versions[0], acked_through=self.acked_through,
            wait_ms=WAIT_MS, **outcome)
        self.add_tensors(0, gradient, request)
        for piece in self.slices[0]:
            request.ranges.add(variable=piece.variable, begin=piece.begin, size=piece.size)
        while True:
            response = self.call(self.shards[0].PushPull, request)
            if (response.verdict != cluster_pb2.VERDICT_UNSPECIFIED and
                    len(response.tensors) == len(request.ranges)):
                break
        values = {name: [0.0] * size_of(name) for name in VARIABLES}
        self.take_tensors(response.tensors, values)
        return response, values, [response.version]

    def take_tensors(self, tensors, values):
        for part in tensors:
            elements = array.array("f", part.data)
            values[part.variable][part.begin:part.begin + len(elements)] = elements

    def train_synchronously(self):
        values, versions = self.pull(0)
        while versions[0] < self.args.pushes:
            step = versions[0]
            time.sleep(self.args.pause)
            gradient, loss = gradients(values, step * self.args.num_workers +
                                       self.args.task_index)
            self.sequence += 1
            if self.args.push_pull:
                response, values, versions = self.push_pull(
                    gradient, versions, contribution=shard_pb2.PushPullRequest.Contribution(
                        seat=self.args.task_index, examples=BATCH_SIZE, loss=loss))
                self.count(response.verdict)
            else:
                self.contribute(step, gradient, loss, versions)
                values, versions = self.pull(step + 1)
            self.acked_through = self.sequence
        return values, versions

    def contribute(self, step, gradient, loss, versions):
        """[2, 3] Pushes and contributes to the open step."""
        receipts = self.push(self.sequence, gradient, versions)
        while True:
            response = self.call(
                self.coordinator.Contribute,
                coordinator_pb2.ContributeRequest(receipts=receipts),
                step=step, seat=self.args.task_index, sequence=self.sequence,
                examples=BATCH_SIZE, loss=loss, acked_through=self.acked_through,
                wait_ms=WAIT_MS)
            if response.verdict != cluster_pb2.VERDICT_UNSPECIFIED:
                break
        self.count(response.verdict)

    def train_asynchronously(self):
        spent = []
        while True:
            self.sequence += 1
            ticket = self.take_ticket(spent)
            if ticket is None:
                return self.pull(0)
            values, versions = self.pull(0)
            time.sleep(self.args.pause)
            gradient, loss = gradients(values, ticket.index)
            if self.args.push_pull:
                response, _, _ = self.push_pull(
                    gradient, versions, application=shard_pb2.PushPullRequest.Application(
                        scalars=ticket.scalars, ticket_receipt=ticket.receipt,
                        examples=BATCH_SIZE))
                staleness, applied = response.staleness, [response.receipt]
            else:
                response, staleness, applied = self.push_and_apply(gradient, versions,
                                                                   ticket)
            if response.verdict != cluster_pb2.ACCEPTED:
                raise RuntimeError(cluster_pb2.Verdict.Name(response.verdict))
            self.count(response.verdict)
            self.staleness.append(staleness)
            spent = [coordinator_pb2.SpentTicket(
                sequence=self.sequence, examples=BATCH_SIZE, loss=loss,
                staleness=staleness, receipts=applied)]

    def push_and_apply(self, gradient, versions, ticket):
        """[A2, A3] Returns (the answer of the last shard, the greatest staleness, the receipts of
        the shards that have applied the push)."""
        held = self.push(self.sequence, gradient, versions)
        staleness, applied = 0, [0] * len(self.shards)
        for ps in self.holders:
            while True:
                response = self.call(
                    self.shards[ps].Apply,
                    shard_pb2.ApplyRequest(sequence=self.sequence, scalars=ticket.scalars,
                                           ticket_receipt=ticket.receipt, receipts=held),
                    examples=BATCH_SIZE, acked_through=self.acked_through, wait_ms=WAIT_MS)
                if response.verdict != cluster_pb2.VERDICT_UNSPECIFIED:
                    break
            staleness = max(staleness, response.staleness)
            applied[ps] = response.receipt
            if response.verdict != cluster_pb2.ACCEPTED:
                break
        return response, staleness, applied

    def take_ticket(self, spent):
        """[A1, A4] Takes a ticket, and has `spent` booked. Returns None when the job is done."""
        while True:
            response = self.call(
                self.coordinator.TakeTicket,
                coordinator_pb2.TakeTicketRequest(sequence=self.sequence, spent=spent),
                acked_through=self.acked_through, wait_ms=WAIT_MS)
            if spent:
                self.acked_through = spent[-1].sequence
                spent = []
            if response.HasField("ticket"):
                return response.ticket
            if response.state.phase == cluster_pb2.DONE:
                return None

    def count(self, verdict):
        self.accepted += verdict == cluster_pb2.ACCEPTED
        self.stale += verdict == cluster_pb2.STALE


def main():
    parser = argparse.ArgumentParser(description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--ps_hosts", required=True, help="host:port of each ps")
    parser.add_argument("--num_workers", type=int, default=1)
    parser.add_argument("--task_index", type=int, default=0)
    parser.add_argument("--mode", choices=["synchronous", "asynchronous"],
                        default="synchronous")
    parser.add_argument("--pushes", type=int, default=20,
                        help="steps (synchronous), or pushes of all workers")
    parser.add_argument("--staleness_bound", type=int, default=-1, help="-1 means none")
    parser.add_argument("--tls_dir", default="",
                        help="folder with ca.crt, tls.crt and tls.key of the task")
    parser.add_argument("--training", default="", help="training that the certificates are for")
    parser.add_argument("--push_pull", action="store_true",
                        help="make each push in one call; needs a single ps")
    parser.add_argument("--pause", type=float, default=0,
                        help="extra seconds for each gradient")
    args = parser.parse_args()

    worker = Worker(args)
    values, versions = worker.run()
    worker.leave()
    print(json.dumps({"accepted": worker.accepted, "stale": worker.stale,
                      "staleness": worker.staleness, "versions": versions,
                      "values": values}))


if __name__ == "__main__":
    main()
