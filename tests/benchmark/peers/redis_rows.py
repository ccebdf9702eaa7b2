# SPDX-License-Identifier: Apache-2.0

"""Rows in Redis, each a binary value under a key of 8 bytes, over loopback.

Redis has no optimizer: a push stores values that are already computed, which is less work than a
step. There are two clients:

    redis         redis-py with the parser hiredis: pipelines of MGET and MSET. Keys
                  are bytes before the clock starts; values are converted from and to
                  one NumPy array.
    redis_packed  the same commands, packed and parsed by NumPy: because all keys and
                  values have the same length, messages are arrays of records. No
                  client of Redis is that fast; this is what its server allows.
"""

import shutil
import socket
import time

import harness
import numpy as np
import redis
import rows

# The number of keys in one MGET or MSET.
CHUNK = 1000


def chunks(array):
    return [array[begin:begin + CHUNK] for begin in range(0, len(array), CHUNK)]


class PackedClient:
    """MGET and MSET of values of equal length, over a bare connection."""

    def __init__(self, port, row_length):
        self._socket = socket.create_connection(("localhost", port))
        self._socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        size = row_length * 4
        self._key = np.dtype([("head", "S4"), ("key", "<i8"), ("end", "S2")])
        head = b"$%d\r\n" % size
        value = [("value_head", f"S{len(head)}"), ("value", "<f4", row_length),
                 ("value_end", "S2")]
        self._pair = np.dtype(self._key.descr + value)
        self._value = np.dtype(value)
        self._value_head = head

    def _keys(self, ids, dtype):
        records = np.empty(len(ids), dtype)
        records["head"], records["end"] = b"$8\r\n", b"\r\n"
        records["key"] = ids
        return records

    def set(self, ids, values):
        """Sends the request; await_set waits for the answer."""
        records = self._keys(ids, self._pair)
        records["value_head"], records["value_end"] = self._value_head, b"\r\n"
        records["value"] = values
        for chunk in chunks(records):
            self._socket.sendall(b"*%d\r\n$4\r\nMSET\r\n" % (1 + 2 * len(chunk)))
            self._socket.sendall(chunk)

    def await_set(self, ids):
        ok = b"+OK\r\n" * len(chunks(ids))
        if self._receive(len(ok)) != ok:
            raise RuntimeError("MSET failed")

    def get(self, ids):
        """Sends the request; await_get waits for the answer."""
        for chunk in chunks(self._keys(ids, self._key)):
            self._socket.sendall(b"*%d\r\n$4\r\nMGET\r\n" % (1 + len(chunk)))
            self._socket.sendall(chunk)

    def await_get(self, ids):
        values = []
        for chunk in chunks(ids):
            head = b"*%d\r\n" % len(chunk)
            answer = self._receive(len(head) + len(chunk) * self._value.itemsize)
            if not answer.startswith(head):
                raise RuntimeError("MGET failed")
            values.append(np.frombuffer(answer, self._value, offset=len(head))["value"])
        return np.concatenate(values)

    def _receive(self, size):
        answer = bytearray(size)
        view, got = memoryview(answer), 0
        while got < size:
            count = self._socket.recv_into(view[got:])
            if count == 0:
                raise RuntimeError("Redis has closed the connection")
            got += count
        return answer


def connect(port):
    client = redis.Redis(port=port)
    for _ in range(200):
        try:
            client.ping()
            return client
        except redis.ConnectionError:
            time.sleep(0.05)
    raise RuntimeError("no Redis")


def measure(flags, port):
    client = connect(port)
    packed = PackedClient(port, flags.row_length)
    batches = rows.Batches(flags)
    count, size = batches.num_unique, flags.row_length * 4
    values = np.random.RandomState(2).rand(count, flags.row_length).astype(np.float32)
    for begin in range(0, flags.rows, 10 * CHUNK):
        ids = np.arange(begin, min(begin + 10 * CHUNK, flags.rows))
        packed.set(ids, np.float32(0))
        packed.await_set(ids)
    keys = [[int(key).to_bytes(8, "little") for key in ids] for ids in batches.unique]

    def queue_set(pipeline):
        data = values.tobytes()
        split = [data[begin:begin + size] for begin in range(0, len(data), size)]
        words = [word for pair in zip(keys[batches.next()], split) for word in pair]
        for begin in range(0, len(words), 2 * CHUNK):
            pipeline.execute_command("MSET", *words[begin:begin + 2 * CHUNK])

    def queue_get(pipeline):
        for chunk in chunks(keys[batches.next()]):
            pipeline.execute_command("MGET", *chunk)

    def array(answers):
        joined = b"".join(value for answer in answers for value in answer)
        return np.frombuffer(joined, np.float32).reshape(count, flags.row_length)

    def push():
        pipeline = client.pipeline(transaction=False)
        queue_set(pipeline)
        pipeline.execute()

    def pull():
        pipeline = client.pipeline(transaction=False)
        queue_get(pipeline)
        return array(pipeline.execute())

    def push_and_pull():
        pipeline = client.pipeline(transaction=False)
        queue_set(pipeline)
        queue_get(pipeline)
        return array(pipeline.execute()[len(chunks(keys[0])):])

    def packed_push():
        ids = batches.unique[batches.next()]
        packed.set(ids, values)
        packed.await_set(ids)

    def packed_pull():
        ids = batches.unique[batches.next()]
        packed.get(ids)
        return packed.await_get(ids)

    def packed_push_and_pull():
        ids, other = batches.unique[batches.next()], batches.unique[batches.next()]
        packed.set(ids, values)
        packed.get(other)
        packed.await_set(ids)
        return packed.await_get(other)

    for peer, operations in (
            ("redis", (push, pull, push_and_pull)),
            ("redis_packed", (packed_push, packed_pull, packed_push_and_pull))):
        for name, operation in zip(("push", "pull", "pushpull"), operations):
            rows.report(peer, name, flags, count, operation)


def main():
    flags = rows.parser().parse_args()
    port = harness.free_port()
    with harness.Processes() as processes:
        processes.run([shutil.which("redis-server"), "--port", str(port), "--bind", "127.0.0.1",
                       "--save", "", "--appendonly", "no"], {}, stdout=-3)
        measure(flags, port)


if __name__ == "__main__":
    main()
