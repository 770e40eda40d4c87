"""What anybody on the local network can announce by multicast DNS, and what a node makes of it."""

from __future__ import annotations

import socket
from ipaddress import ip_network
from typing import Any, cast

import pytest
import trio

from canopy.wire.config import NodeConfig
from canopy.wire.constants import ANNOUNCED_HOSTS, NEAR_MOST
from canopy.wire.directory.local_network import Announcements, LocalNetwork, overlay_tag
from canopy.wire.log import Log
from canopy.wire.process.listener import StartError, open_mdns

TAG = overlay_tag("acme")
NETWORKS = [ip_network("192.0.2.0/24"), ip_network("2001:db8::/64")]


def announcements() -> Announcements:
    return Announcements("acme", ["192.0.2.1:4470"], NETWORKS)


@pytest.mark.parametrize(
    ("tag", "host", "port"),
    [
        (b"", "192.0.2.9", 4470),
        (None, "192.0.2.9", 4470),
        (overlay_tag("other"), "192.0.2.9", 4470),
        (TAG, "198.51.100.7", 4470),  # somewhere in the Internet, which nodes would dial for it
        (TAG, "127.0.0.1", 4470),
        (TAG, "intranet.example", 4470),
        (TAG, "fe80::1", 4470),
        (TAG, "224.0.0.251", 4470),
        (TAG, "192.0.2.9", 0),
        (TAG, "192.0.2.9", 70_000),
        (TAG, "192.0.2.9", None),
        (TAG, "192.0.2.1", 4470),  # known
    ],
)
def test_only_numbers_of_own_networks_are_dialled(
    tag: bytes | None, host: str, port: int | None
) -> None:
    taken = announcements()
    assert taken.take(tag, [host], port) == []
    assert taken.take(TAG, ["192.0.2.9", "2001:db8::9"], 4470) == [
        "192.0.2.9:4470",
        "[2001:db8::9]:4470",
    ]


def test_announcements_without_end_lead_to_few_dials() -> None:
    taken = announcements()
    first = [f"192.0.2.{number}" for number in range(10, 30)]
    found = taken.take(TAG, first, 4470)
    assert len(found) == ANNOUNCED_HOSTS
    assert taken.take(TAG, first, 4470) == [], "each once"
    for port in range(5000, 5200):
        found += taken.take(TAG, ["192.0.2.50"], port)
    assert len(found) == len(set(found)) == NEAR_MOST


def test_without_keys_a_node_with_mdns_does_not_start() -> None:
    config = NodeConfig(mdns=True)
    with pytest.raises(StartError, match="mdns needs the node's keys"):
        open_mdns(cast(Any, None), config, (), None, Log())
    assert open_mdns(cast(Any, None), NodeConfig(), (), None, Log()) is None


class Dialling:
    """A driver whose node keeps what it is to dial."""

    def __init__(self) -> None:
        self.node = self
        self.dialled: list[str] = []
        self.changed = trio.Event()

    def turn(self, call: Any, *arguments: Any) -> None:
        call(*arguments)

    def add_seeds(self, addresses: list[str]) -> None:
        self.dialled += addresses
        self.changed.set()


def multicasts() -> bool:
    """Whether a datagram to a group comes back on loopback here."""
    group, port = "224.0.0.251", 0
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as one:
        try:
            one.settimeout(2)
            one.bind(("", port))
            one.setsockopt(socket.IPPROTO_IP, socket.IP_MULTICAST_IF, socket.inet_aton("127.0.0.1"))
            member = socket.inet_aton(group) + socket.inet_aton("127.0.0.1")
            one.setsockopt(socket.IPPROTO_IP, socket.IP_ADD_MEMBERSHIP, member)
            one.sendto(b"x", (group, one.getsockname()[1]))
            return one.recv(1) == b"x"
        except OSError:
            return False


async def heard(nodes: dict[str, bool], drivers: dict[str, Dialling]) -> None:
    """Run the nodes until those of one overlay have heard of each other."""
    async with trio.open_nursery() as nursery:
        for port, (name, announces) in enumerate(nodes.items(), 41_160):
            network = LocalNetwork(
                cast(Any, drivers[name]), name.split()[0], (), Log("error"), announces=announces
            )
            nursery.start_soon(network.run, f"127.0.0.1:{port}", "127.0.0.1")
        with trio.fail_after(60):
            for name in list(nodes)[:3]:
                await drivers[name].changed.wait()
            while len(drivers["acme leaf"].dialled) < 2:
                await trio.sleep(0.05)
        nursery.cancel_scope.cancel()


def test_nodes_of_an_overlay_hear_of_each_other_and_of_no_leaf() -> None:
    pytest.importorskip("zeroconf")
    if not multicasts():
        pytest.skip("no multicast on loopback here")
    nodes = {"acme 1": True, "acme 2": True, "acme leaf": False, "other": True}
    drivers = {name: Dialling() for name in nodes}
    trio.run(heard, nodes, drivers)
    assert drivers["acme 1"].dialled == ["127.0.0.1:41161"]
    assert drivers["acme 2"].dialled == ["127.0.0.1:41160"]
    assert sorted(drivers["acme leaf"].dialled) == ["127.0.0.1:41160", "127.0.0.1:41161"]
    assert drivers["other"].dialled == []
