"""Three members of etcd: each row is the value of a key of its own; a batch is one transaction.

etcd is no log and keeps its data in memory as well; it stands here for what a Raft group with an
fdatasync for each round costs.
"""

from __future__ import annotations

import asyncio
import itertools
from contextlib import ExitStack
from pathlib import Path
from typing import Any, Final

from bench.streams.contestants.asking import AskingProgram, free_ports, once_ready
from bench.streams.contestants.contestant import MAJORITY, Servers, encoded_rows

OPERATIONS: Final = 1_000
"""Of a transaction, at most."""


class Etcd(AskingProgram):
    """etcd, asked by gRPC."""

    durable = MAJORITY
    replicas = 3

    def __init__(self, folder: Path, stack: ExitStack) -> None:
        super().__init__(stack)
        ports = free_ports(6)
        peers = ",".join(f"n{n}=http://127.0.0.1:{ports[3 + n]}" for n in range(3))
        servers = Servers(stack)
        self.processes = servers.processes
        for number in range(3):
            (folder / f"n{number}").mkdir(parents=True)
            mine = f"http://127.0.0.1:{ports[number]}"
            with_peers = f"http://127.0.0.1:{ports[3 + number]}"
            command = ["etcd", "--name", f"n{number}", "--data-dir", str(folder / f"n{number}")]
            command += ["--listen-client-urls", mine, "--advertise-client-urls", mine]
            command += ["--listen-peer-urls", with_peers]
            command += ["--initial-advertise-peer-urls", with_peers]
            command += ["--initial-cluster", peers, "--max-txn-ops", str(OPERATIONS)]
            command += ["--quota-backend-bytes", str(6 << 30), "--log-level", "error"]
            servers.start(command, folder / f"log{number}")
        self.rows = encoded_rows(4_096)
        self.numbers = itertools.count()
        self.loop.run_until_complete(self._connect(ports[0]))
        stack.callback(lambda: self.loop.run_until_complete(self.channel.close()))
        self.append(1, 1, 1.0)

    async def _connect(self, port: int) -> None:
        import grpc  # type: ignore[import-not-found, import-untyped, unused-ignore]
        import grpc.aio  # type: ignore[import-not-found, import-untyped, unused-ignore]

        self.channel = grpc.aio.insecure_channel(f"127.0.0.1:{port}")
        self.put = self.channel.unary_unary("/etcdserverpb.KV/Put")
        self.transact = self.channel.unary_unary("/etcdserverpb.KV/Txn")
        await once_ready(lambda: self.put(put_request(b"begin", b""), timeout=2.0), grpc.RpcError)

    async def send(self, place: int, count: int) -> list[asyncio.Future[Any]]:
        """One request, for one row or several."""
        puts = [
            put_request(b"%016d" % next(self.numbers), self.rows[n % len(self.rows)])
            for n in range(place, place + count)
        ]
        if count == 1:
            call = self.put(puts[0])
        else:  # TxnRequest.success, of RequestOp.request_put
            call = self.transact(b"".join(field(2, field(2, put)) for put in puts))
        return [asyncio.ensure_future(answered(call))]


async def answered(call: Any) -> None:
    """Wait for the answer to a call. Raises what it fails with."""
    await call


def put_request(key: bytes, value: bytes) -> bytes:
    """etcdserverpb.PutRequest as Protocol Buffers encode it."""
    return field(1, key) + field(2, value)


def field(number: int, data: bytes) -> bytes:
    """A field of bytes, or of a message."""
    return bytes([number << 3 | 2]) + varint(len(data)) + data


def varint(number: int) -> bytes:
    """A number, seven bits a byte."""
    found = bytearray()
    while number > 0x7F:
        found.append(number & 0x7F | 0x80)
        number >>= 7
    return bytes([*found, number])
