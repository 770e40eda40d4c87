"""Nodes of one local network find each other by multicast DNS (RFC 6762, RFC 6763).

It is off unless configured (`mdns`), and needs keys: anybody on the network can announce anything.
So only addresses to dial are taken from an announcement: numeric ones, in networks of this machine,
`NEAR_MOST` in total. The handshake of the link verifies the node (docs/design/security.md). An
announcement has an address, under a name that is drawn at each start, and a hash of the overlay's
name, so that nodes of other overlays are not dialled in vain.

``Announcements`` selects addresses from announcements, without IO. ``LocalNetwork`` runs the
library, which has threads of its own; it adds no work to events.
"""

from __future__ import annotations

import socket
from collections.abc import Iterable, Sequence
from hashlib import blake2b
from ipaddress import IPv4Network, IPv6Network, ip_address, ip_network
from secrets import token_hex
from typing import TYPE_CHECKING, Any, Final

import trio

from canopy.wire.addresses import join_address, split_address
from canopy.wire.constants import ANNOUNCED_HOSTS, NEAR_ANSWER, NEAR_MOST
from canopy.wire.directory.directory import silence_libraries
from canopy.wire.driver import TrioDriver
from canopy.wire.log import Log

if TYPE_CHECKING:
    from zeroconf import ServiceInfo, Zeroconf

Network = IPv4Network | IPv6Network

SERVICE: Final = "_canopy._tcp.local."
OVERLAY: Final = b"overlay"  # the property with the overlay's tag


def overlay_tag(overlay: str) -> bytes:
    """Return the hash of the overlay's name for announcements, which strangers can read."""
    return blake2b(overlay.encode(), digest_size=8, person=b"canopy mdns").hexdigest().encode()


class Announcements:
    """The addresses taken from announcements to be dialled, each once."""

    def __init__(self, overlay: str, known: Iterable[str], networks: Sequence[Network]) -> None:
        """`known`: addresses that are dialled anyway, and the node's own. `networks`: those of this
        machine's interfaces."""
        self._tag = overlay_tag(overlay)
        self._known = dict.fromkeys(known)
        self._networks = networks
        self._left = NEAR_MOST

    def take(self, tag: bytes | None, hosts: Sequence[str], port: int | None) -> list[str]:
        """Return the addresses of an announcement that are to be dialled now."""
        if tag != self._tag or port is None or not 0 < port <= 65_535:
            return []
        fresh = []
        for host in hosts[:ANNOUNCED_HOSTS]:
            address = join_address(host, port)
            if self._left and address not in self._known and self._is_near(host):
                self._known[address] = None
                self._left -= 1
                fresh.append(address)
        return fresh

    def _is_near(self, host: str) -> bool:
        """Return whether a host is an address of one of the networks. Link-local addresses
        (fe80::/10) are excluded: they would need the interface's name."""
        try:
            place = ip_address(host)
        except ValueError:
            return False
        if place.is_link_local or place.is_multicast:
            return False
        return any(place in network for network in self._networks)


class LocalNetwork:
    """Announces a node on the local network, and dials announced nodes. If the library fails, the
    node runs without it."""

    def __init__(
        self, driver: TrioDriver, overlay: str, known: Sequence[str], log: Log, *, announces: bool
    ) -> None:
        """`known`: addresses that are dialled anyway. `announces`: whether others should dial this
        node."""
        self._driver = driver
        self._overlay = overlay
        self._known = known
        self._log = log
        self._announces = announces
        self._zeroconf: Zeroconf | None = None
        self._taken: Announcements | None = None
        self._name = f"{token_hex(8)}.{SERVICE}"
        self._token: trio.lowlevel.TrioToken | None = None

    async def run(self, own: str, bound: str) -> None:
        """Open the port of multicast DNS, announce `own`, the node's address, and dial others,
        until cancelled; then withdraw the announcement. `bound`: the host at which the node
        listens."""
        self._token = trio.lowlevel.current_trio_token()
        try:
            await trio.to_thread.run_sync(self._open, own, bound)
        except Exception as error:  # the node goes on without
            self._log.warning("mdns_off", reason=f"{type(error).__name__}: {error}")
            return
        self._log.info("mdns", announced=own if self._announces else "")
        try:
            await trio.sleep_forever()
        finally:
            if self._zeroconf is not None:
                self._zeroconf.close()

    def _take(self, tag: bytes | None, hosts: list[str], port: int | None) -> None:
        """Dial new addresses of an announcement. Called in the trio thread."""
        assert self._taken is not None
        if fresh := self._taken.take(tag, hosts, port):
            self._log.info("found", addresses=",".join(fresh), by="mdns")
            self._driver.turn(self._driver.node.add_seeds, fresh)

    # In the library's threads.

    def _open(self, own: str, bound: str) -> None:
        from zeroconf import InterfaceChoice, ServiceBrowser, Zeroconf

        silence_libraries(self._log, "zeroconf")
        self._taken = Announcements(self._overlay, (*self._known, own), own_networks())
        host = ip_address(bound)
        one = host.version == 4 and not host.is_unspecified
        self._zeroconf = Zeroconf(interfaces=[bound] if one else InterfaceChoice.All)
        if self._announces:
            self._zeroconf.register_service(self._announcement(own))
        ServiceBrowser(self._zeroconf, SERVICE, handlers=[self._changed])

    def _announcement(self, own: str) -> ServiceInfo:
        from zeroconf import ServiceInfo

        name, port = split_address(own)
        found = socket.getaddrinfo(name, port, type=socket.SOCK_STREAM)
        hosts = list(dict.fromkeys(str(each[4][0]) for each in found))[:ANNOUNCED_HOSTS]
        return ServiceInfo(
            SERVICE,
            self._name,
            port=port,
            parsed_addresses=hosts,
            properties={OVERLAY: overlay_tag(self._overlay)},
            server=f"{self._name.partition('.')[0]}.local.",
        )

    def _changed(self, zeroconf: Zeroconf, service_type: str, name: str, state_change: Any) -> None:
        """Handle a name that the library's browser has found. Called in its thread, one name after
        another."""
        from zeroconf import ServiceStateChange

        if state_change is ServiceStateChange.Removed or name == self._name:
            return
        found = zeroconf.get_service_info(service_type, name, timeout=NEAR_ANSWER)
        if found is None or self._token is None:
            return
        hosts = found.parsed_addresses()[:ANNOUNCED_HOSTS]
        try:
            self._token.run_sync_soon(self._take, found.properties.get(OVERLAY), hosts, found.port)
        except trio.RunFinishedError:
            return


def own_networks() -> list[Network]:
    """Return the networks of this machine's interfaces."""
    import ifaddr  # comes with zeroconf

    found: list[Network] = []
    for adapter in ifaddr.get_adapters():
        for each in adapter.ips:
            host = each.ip if isinstance(each.ip, str) else each.ip[0]
            found.append(ip_network(f"{host}/{each.network_prefix}", strict=False))
    return found
