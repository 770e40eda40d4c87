"""Peers of the harness in the shape of an overlay: three servers, linked with one another.

Connection c is at server c modulo 3 and the publisher at the first, as with Canopy's three nodes
(bench/dataplane/adapter.py). None of these systems selects by content, so that every event reaches
every connection, and the filters are at the subscribers. Each class is a mixin:
bench/dataplane/stage.py puts it before the harness's adapter for one server, of which it changes
where the servers are and who connects to which.

In the batch forms a message is a published batch, and a compiled filter runs over all of it, as in
the harness's `zmq_batch`. In the others each event is a message.

    python -m bench.dataplane.overlays zenoh NUMBER PORT        # one router, or one forwarder: a
    python -m bench.dataplane.overlays zeromq NUMBER PORT       # process of its own each
"""

from __future__ import annotations

import json
import sys
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, Final

SERVERS: Final = 3

LINKS: Final = 100
"""Added to a server's port: where other servers connect to it."""

PUBLISHERS: Final = 200
"""Added to a forwarder's port: where publishers connect to it."""

HEADER: Final = 96
"""Bytes of an encoded event of the harness before its payload."""

Batch = Sequence[tuple[int, Any, bytes]]

if TYPE_CHECKING:

    class Single:
        """What is used of the harness's adapters for one server."""

        cfg: dict[str, Any]
        port: int

        def spawn(self, argv: Sequence[str], *, port: int) -> None: ...
        def subscribe(self, conn: int, subs: Any, sink: Any) -> None: ...
        def connect_pub(self) -> None: ...
        def publish(self, batch: Batch) -> None: ...
else:
    Single = object  # the adapter of the harness is the next base of what stage.py writes


class Spread(Single):
    """Three servers, and the connections over them."""

    def port_of(self, conn: int) -> int:
        """Where a connection's server listens."""
        return self.port + conn % SERVERS

    @contextmanager
    def at(self, port: int) -> Iterator[None]:
        """Let the harness's adapter connect to this port."""
        first, self.port = self.port, port
        try:
            yield
        finally:
            self.port = first

    def spawn_own(self, kind: str) -> None:
        """Start the servers as processes of this module, each when the former listens."""
        for number in range(SERVERS):
            arguments = ["-m", __spec__.name, kind, str(number), str(self.port)]
            self.spawn([sys.executable, *arguments], port=self.port + number)


class Batched(Single):
    """A message for each published batch, with events at multiples of eight bytes."""

    def stride(self) -> int:
        """Bytes from an event to the next."""
        size: int = HEADER + self.cfg["payload"]
        return -(-size // 8) * 8

    def subscribe(self, conn: int, subs: Any, sink: Any) -> None:
        stride = self.stride()
        super().subscribe(conn, subs, lambda data: sink.many(data, len(data) // stride, stride))

    def publish(self, batch: Batch) -> None:
        stride = self.stride()
        number, attributes, _ = batch[0]
        joined = b"".join(data.ljust(stride, b"\0") for _, _, data in batch)
        super().publish([(number, attributes, joined)])


class NatsThree(Spread):
    """A cluster of three NATS servers with routes between all."""

    loop: Any

    def start(self) -> None:
        routes = ",".join(f"nats://127.0.0.1:{self.port + LINKS + n}" for n in range(SERVERS))
        for number in range(SERVERS):
            where = ["-a", "127.0.0.1", "-p", str(self.port + number), "-n", f"n{number}"]
            link = f"nats://127.0.0.1:{self.port + LINKS + number}"
            cluster = ["-cluster_name", "peers", "-cluster", link, "-routes", routes]
            self.spawn(["nats-server", *where, *cluster], port=self.port + number)

    def connect_subs(self, conns: Sequence[int]) -> None:
        self.loop_()
        self.nc = {conn: self.loop.run_until_complete(self._connect(conn)) for conn in conns}

    async def _connect(self, conn: int) -> Any:
        from nats.aio.client import Client  # type: ignore[import-not-found, unused-ignore]

        client = Client()
        await client.connect(f"nats://127.0.0.1:{self.port_of(conn)}")
        return client

    if TYPE_CHECKING:

        def loop_(self) -> None: ...


class NatsThreeBatch(Batched, NatsThree):
    """The same with a message for each batch."""


class ZenohThree(Spread):
    """Three Zenoh routers, linked with one another; programs are their clients."""

    if TYPE_CHECKING:

        def conf(self, **settings: str) -> Any: ...

    def start(self) -> None:
        self.spawn_own("zenoh")

    def open(self, conn: int) -> Any:
        """A session of a client of the connection's router."""
        import zenoh  # type: ignore[import-not-found, unused-ignore]

        router = json.dumps([f"tcp/127.0.0.1:{self.port_of(conn)}"])
        return zenoh.open(self.conf(mode='"client"', **{"connect/endpoints": router}))

    def connect_subs(self, conns: Sequence[int]) -> None:
        self.z = {conn: self.open(conn) for conn in conns}
        self.k: list[Any] = []

    def connect_pub(self) -> None:
        import zenoh

        self.s = self.open(0)
        self.p = self.s.declare_publisher(
            "ev",
            congestion_control=zenoh.CongestionControl.BLOCK,
            reliability=zenoh.Reliability.RELIABLE,
        )


class ZenohThreeBatch(Batched, ZenohThree):
    """The same with a message for each batch."""


class ZeroMQThreeBatch(Spread):
    """A mesh of three ZeroMQ forwarders, with a message for each batch as in `zmq_batch`."""

    def start(self) -> None:
        self.spawn_own("zeromq")

    def subscribe(self, conn: int, subs: Any, sink: Any) -> None:
        with self.at(self.port_of(conn)):
            super().subscribe(conn, subs, sink)

    def connect_pub(self) -> None:
        import zmq  # type: ignore[import-not-found, unused-ignore]

        self.ctx = zmq.Context()
        self.p = self.ctx.socket(zmq.PUB)
        self.p.setsockopt(zmq.SNDHWM, 0)
        self.p.setsockopt(zmq.LINGER, 0)
        self.p.connect(f"tcp://127.0.0.1:{self.port + PUBLISHERS}")


def route(number: int, port: int) -> None:
    """Be a Zenoh router, with links to those with smaller numbers."""
    import zenoh

    config = zenoh.Config()
    settings: dict[str, Any] = {
        "mode": "router",
        "listen/endpoints": [f"tcp/127.0.0.1:{port + number}"],
        "connect/endpoints": [f"tcp/127.0.0.1:{port + n}" for n in range(number)],
        "scouting/multicast/enabled": False,
        "scouting/gossip/enabled": False,
    }
    for key, value in settings.items():
        config.insert_json5(key, json.dumps(value))
    with zenoh.open(config):
        threading.Event().wait()


def forward(number: int, port: int) -> None:
    """Be a ZeroMQ forwarder: what publishers here send goes to all forwarders, and what any of them
    took from its publishers goes to the subscribers here. Subscriptions go the other way."""
    import zmq

    context = zmq.Context()

    def bound(kind: int, *addresses: str) -> Any:
        made = context.socket(kind)
        made.setsockopt(zmq.SNDHWM, 0)
        made.setsockopt(zmq.RCVHWM, 0)
        for address in addresses:
            made.bind(address)
        return made

    published = bound(zmq.XSUB, f"tcp://127.0.0.1:{port + PUBLISHERS + number}")
    own = "inproc://published"
    to_all = bound(zmq.XPUB, f"tcp://127.0.0.1:{port + LINKS + number}", own)
    from_all = bound(zmq.XSUB)
    from_all.connect(own)
    for other in range(SERVERS):
        if other != number:
            from_all.connect(f"tcp://127.0.0.1:{port + LINKS + other}")
    subscribers = bound(zmq.XPUB, f"tcp://127.0.0.1:{port + number}")
    threading.Thread(target=zmq.proxy, args=(published, to_all), daemon=True).start()
    zmq.proxy(from_all, subscribers)


def main() -> None:
    kind, number, port = sys.argv[1:]
    {"zenoh": route, "zeromq": forward}[kind](int(number), int(port))


if __name__ == "__main__":
    main()
