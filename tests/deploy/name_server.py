# SPDX-License-Identifier: Apache-2.0

"""A DNS server like a cluster's, whose names come and go."""

import socket
import struct
import threading

_TYPE_A = 1
_NAME_ERROR = 3


class NameServer:
    """Answers for the IPv4 addresses of `names`, on UDP port 53 of `address`. Thread-safe."""

    def __init__(self, address):
        self._lock = threading.Lock()
        self._addresses = {}
        self._socket = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
        self._socket.bind((address, 53))
        self._thread = threading.Thread(target=self._serve, daemon=True)
        self._thread.start()

    def close(self):
        # An empty query ends the thread.
        self._socket.sendto(b"", self._socket.getsockname())
        self._thread.join()
        self._socket.close()

    def set(self, name, address):
        """Sets the address of a name; None makes the name unknown."""
        with self._lock:
            if address is None:
                self._addresses.pop(name.lower(), None)
            else:
                self._addresses[name.lower()] = address

    def _serve(self):
        while True:
            query, client = self._socket.recvfrom(512)
            if not query:
                return
            self._socket.sendto(self._answer(query), client)

    def _answer(self, query):
        # RFC 1035, 4.1: header, question, answer.
        labels, at = [], 12
        while query[at] != 0:
            labels.append(query[at + 1 : at + 1 + query[at]].decode())
            at += 1 + query[at]
        question = query[12 : at + 5]
        (kind,) = struct.unpack("!H", query[at + 1 : at + 3])
        with self._lock:
            address = self._addresses.get(".".join(labels).lower())
        answer = b""
        if address is not None and kind == _TYPE_A:
            answer = struct.pack("!HHHIH", 0xC00C, _TYPE_A, 1, 5, 4) + socket.inet_aton(address)
        # Response, authoritative, recursion desired and available.
        flags = 0x8580 | (0 if address is not None else _NAME_ERROR)
        header = query[:2] + struct.pack("!HHHHH", flags, 1, 1 if answer else 0, 0, 0)
        return header + question + answer
