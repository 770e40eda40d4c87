"""Checks of a node's machine, folder and keys. They need no running node."""

from __future__ import annotations

import os
import platform
import resource
import shutil
import socket
import stat
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from statistics import median
from typing import TYPE_CHECKING, Final, Literal

import msgspec

from canopy.cli.output import when
from canopy.wire.durable import sync_data
from overlay.phrases import as_argument

if TYPE_CHECKING:
    from canopy.wire.config import NodeConfig
    from canopy.wire.keys.key_folder import KeyFolder


# --- what one check says ---

Level = Literal["ok", "note", "warning", "error"]
SIGNS: Final[dict[Level, tuple[str, str]]] = {
    "ok": ("✓", "green"),
    "note": ("·", "cyan"),
    "warning": ("!", "yellow"),
    "error": ("✗", "red"),
}


class Finding(msgspec.Struct, frozen=True):
    """The result of a check. `what`: the observation; `do`: the advice, "" if nothing has to be
    done; `check`: the name of the check, which `carry_out` adds."""

    level: Level
    what: str
    do: str = ""
    check: str = ""


Check = Callable[[], Iterator[Finding]]
"""Checks one subject. Raises OSError if it cannot be read."""


def carry_out(name: str, check: Check) -> list[Finding]:
    """Return the findings of a check. If it fails with an OSError, that is its finding."""
    try:
        return [msgspec.structs.replace(one, check=name) for one in check()]
    except OSError as error:
        reason = error.strerror or str(error)
        return [Finding("warning", f"could not be looked at: {reason}", check=name)]


FILES: Final = 4_096 + 256 + 256
"""The number of open files of a busy node: its connections, its programs, and the newest segments
of shards (canopy/wire/constants.py)."""

ROOM: Final = 1 << 30  # bytes; less is near the end of a disk that logs are written to
SHARE: Final = 0.05  # of the disk
SYNCS: Final = 5
SYNC_BYTES: Final = 4_096
SLOW_SYNC: Final = 0.05
"""The time of an fdatasync, in seconds, above which a primary that waits for its log is slow: a
fifth of `election.heartbeat`."""
STUCK_SYNC: Final = 0.5  # … and half of `election.suspect_after`
REMOTE: Final = ("nfs", "nfs4", "cifs", "smb3", "9p", "fuse.sshfs")
VOLATILE: Final = ("tmpfs", "ramfs")
DIAL: Final = 3.0  # seconds for a peer to accept a connection
DAY: Final = 86_400.0
SOON: Final = 2 * DAY
ISSUER_SOON: Final = 14 * DAY
"""The time before an issuer's end, in seconds, from which on a warning is given: two lifetimes of a
certificate that it signs."""


def look_at_program() -> Iterator[Finding]:
    """Check Python, the package and the compiled kernels."""
    import matching
    from canopy.wire.process.supervision import package_version
    from overlay.links.messages import OLDEST_PROTOCOL, PROTOCOL

    version = package_version() or "of a folder"
    what = f"canopy {version} on Python {platform.python_version()}, {platform.system()}"
    yield Finding("ok", f"{what}; speaks protocol {OLDEST_PROTOCOL} to {PROTOCOL}")
    if matching.warm_is_slow():
        yield Finding(
            "note",
            "the matching engine is not compiled yet: the first node to need it "
            "does that beside its work",
            'python -c "import matching; matching.warm()" does it now',
        )
    else:
        yield Finding("ok", "the matching engine is compiled")


def look_at_limits() -> Iterator[Finding]:
    """Check the limits of open files, and the machine's limits for one process."""
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if hard != resource.RLIM_INFINITY and hard < FILES:
        yield Finding(
            "warning",
            f"a process may open {hard} files; a node with all its links, "
            f"programs and shards has {FILES}",
            "ulimit -Hn, or LimitNOFILE of the systemd unit (65536)",
        )
    else:
        yield Finding("ok", f"a process may open {hard if hard > 0 else 'any'} files")
    processors = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else 1
    load = os.getloadavg()[0]
    if load > 2 * processors:
        yield Finding(
            "warning",
            f"load {load:.1f} on {processors} processors: nodes answer late",
            "find what else runs: top",
        )


def look_at_folder(folder: Path) -> Iterator[Finding]:
    """Check the data folder: its owner, who may read it, and its file system."""
    if not folder.exists():
        yield Finding("note", f"{folder} is not there yet; the first start makes it")
        return
    if not folder.is_dir():
        yield Finding("error", f"{folder} is no folder", "name another with --data")
        return
    found = folder.stat()
    mode = stat.S_IMODE(found.st_mode)
    if found.st_uid != os.getuid():
        yield Finding(
            "error",
            f"{folder} belongs to user {found.st_uid}, and this is user {os.getuid()}",
            "run canopy as that user",
        )
    elif mode & 0o077:
        yield Finding(
            "warning",
            f"{folder} has the mode {mode:04o}: others may read what is there",
            f"chmod 700 {as_argument(folder)}; the next start does it as well",
        )
    else:
        yield Finding("ok", f"{folder} is private ({mode:04o})")
    kind = filesystem(folder)
    if kind in REMOTE:
        yield Finding(
            "warning",
            f"{folder} is on {kind}: locks and syncs are those of a server",
            "use a local disk",
        )
    if kind in VOLATILE:
        yield Finding(
            "warning",
            f"{folder} is on {kind}: what the node promises to keep is gone with the machine",
            "use a disk",
        )


def filesystem(path: Path, mounts: Path = Path("/proc/mounts")) -> str:
    """Return the type of the file system of `path`; "" if unknown."""
    best, kind = -1, ""
    try:
        lines = mounts.read_text(encoding="utf-8", errors="replace").splitlines()
    except OSError:
        return ""
    target = os.path.realpath(path)
    for line in lines:
        words = line.split(" ")
        at = words[1].replace("\\040", " ") if len(words) > 2 else ""
        within = at and (target == at or target.startswith(at.rstrip("/") + "/"))
        if within and len(at) >= best:
            best, kind = len(at), words[2]
    return kind


def look_at_disk(folder: Path) -> Iterator[Finding]:
    """Check the free space of the data folder's disk, and the time of a durable write."""
    from canopy.wire.constants import START_ROOM

    place = next(path for path in (folder, *folder.absolute().parents) if path.exists())
    usage = shutil.disk_usage(place)
    free = f"{usage.free / 1e9:.1f} GB of {usage.total / 1e9:.1f} are free at {place}"
    if usage.free < START_ROOM:
        yield Finding("error", f"{free}: no node starts there", "make room")
    elif usage.free < min(ROOM, SHARE * usage.total):
        yield Finding("warning", free, "make room: a node whose disk is full ends")
    else:
        yield Finding("ok", free)
    if not folder.is_dir():
        return
    try:
        took = sync_time(folder)
    except OSError as error:
        reason = error.strerror or str(error)
        advice = f"chmod u+rwx {as_argument(folder)}, as the user who runs the node"
        yield Finding("error", f"cannot write in {folder}: {reason}", advice)
        return
    what = f"writing durably takes {took * 1e3:.1f} ms"
    if took > STUCK_SYNC:
        yield Finding("error", f"{what}: elections would be lost to it", "another disk")
    elif took > SLOW_SYNC:
        yield Finding("warning", f"{what}: a primary here is slow", "another disk")
    else:
        yield Finding("ok", what)


def sync_time(folder: Path) -> float:
    """Return the median time of `SYNCS` fdatasyncs of a small file, in seconds."""
    path = folder / "doctor.new"
    times = []
    handle = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o600)
    try:
        for _ in range(SYNCS):
            os.write(handle, bytes(SYNC_BYTES))
            began = time.perf_counter()
            sync_data(handle)
            times.append(time.perf_counter() - began)
    finally:
        os.close(handle)
        path.unlink(missing_ok=True)
    return median(times)


def look_at_keys(config: NodeConfig) -> Iterator[Finding]:
    """Check the node's key and certificate."""
    from canopy.wire.addresses import is_loopback, split_address
    from canopy.wire.keys.certificates import KeyFolderError
    from canopy.wire.keys.key_folder import KeyFolder

    keys = KeyFolder(config.folder)
    if not keys.exists:
        if is_loopback(split_address(config.listen)[0]):
            yield Finding("ok", "no keys: the node is reached from this machine only")
        else:
            yield Finding(
                "error" if not config.insecure else "warning",
                f"no keys, and {config.listen} is reached by others",
                "canopy keys init at the first node, canopy keys invite there for each other",
            )
        return
    try:
        keys.check()
        certificate = keys.certificate()
    except (KeyFolderError, ValueError) as error:
        yield Finding("error", str(error))
        return
    if certificate is None:
        yield Finding("error", "a key without a certificate", "canopy node --join @FILE")
        return
    now = time.time()
    left = certificate.ends - now
    until = when(certificate.ends)
    role = certificate.principal.role.name.lower()
    if certificate.begins > now:
        yield Finding(
            "error",
            f"the certificate begins in {(certificate.begins - now) / 60:.0f} "
            "minutes: this machine's clock, or its issuer's, is wrong",
            "set the clock (NTP)",
        )
    elif left < 0:
        yield Finding(
            "error",
            f"the certificate has ended, {until}",
            "start the node while its issuer runs: it is renewed for 90 days after its end",
        )
    elif left < SOON:
        yield Finding(
            "warning",
            f"the certificate ends {until}, and was not renewed",
            "is the issuer reached? The log says renewal_failed, and why",
        )
    else:
        yield Finding("ok", f"{role} of {certificate.holder.overlay} until {until}")
    yield from _look_at_beliefs(keys, certificate.holder.overlay)
    if keys.is_issuer:
        yield from _look_at_issuer(keys, now)
    if (keys.path / "root.key").exists():
        yield Finding(
            "note",
            "the root's key is here: who reads it signs any issuer",
            f"move {keys.path / 'root.key'} to a safe place, offline: nothing that runs needs it",
        )


def _look_at_beliefs(keys: KeyFolder, overlay: str) -> Iterator[Finding]:
    """Check whether roots, certificate, policy and list of revocations belong together."""
    from canopy.wire.keys.beliefs import read_beliefs
    from canopy.wire.keys.certificates import KeyFolderError

    try:
        with keys.locked():
            found = read_beliefs(keys, overlay)
    except (KeyFolderError, ValueError, OSError) as error:
        yield Finding("error", str(error), "canopy keys renew, while its issuer runs")
        return
    for fault in found.faults:
        yield Finding("error", fault)
    if found.is_behind:
        yield Finding(
            "warning",
            "others believe a root that this node does not know",
            "a running node renews by itself; canopy keys renew while its issuer runs",
        )


def _look_at_issuer(keys: KeyFolder, now: float) -> Iterator[Finding]:
    """Check the issuer in this node's key folder."""
    from canopy.wire.keys.authority import issuer_of
    from canopy.wire.keys.certificates import KeyFolderError
    from canopy.wire.keys.ledger import Ledger, LimitError
    from canopy.wire.keys.rotation import not_renewed

    try:
        issuer = issuer_of(keys)
        restriction = issuer.restriction
        Ledger(keys.path).limits()
        own = keys.certificate()
        revoked = () if own is None else keys.revocations(own.holder.overlay)[0].ids
    except (KeyFolderError, LimitError, ValueError) as error:
        yield Finding("error", str(error))
        return
    ends = issuer.certificate.not_valid_after_utc.timestamp()
    until = when(ends)
    remedy = "canopy keys issuer, with the root's key, into this data folder"
    may = "any node" if restriction is None else str(restriction)
    if issuer.id in revoked:
        yield Finding("error", f"this node's issuer {issuer.id} was revoked", remedy)
    elif ends < now:
        yield Finding("error", f"this node's issuer has ended, {until}", remedy)
    elif ends - now < ISSUER_SOON:
        reason = f"this node's issuer ends {until}, and with it all that it has signed"
        yield Finding("warning", reason, remedy)
    else:
        yield Finding("ok", f"issuer of {may} until {until}")
    if restriction is None and len(keys.chain("roots")) > 1:
        late = len(not_renewed(keys, own.holder.overlay, now)) if own is not None else 0
        yield Finding(
            "warning",
            f"the former root is still believed; {late} nodes have not renewed",
            "canopy keys rotate --finish",
        )


def look_at_port(config: NodeConfig) -> Iterator[Finding]:
    """Check whether the node's addresses can be bound. For a node that does not run."""
    from canopy.wire.addresses import split_address
    from canopy.wire.process.listener import bind_fault

    for key, address in (("listen", config.listen), ("metrics.listen", config.metrics.listen)):
        if not address:
            continue
        host, port = split_address(address)
        try:
            family, kind, protocol, _, place = socket.getaddrinfo(
                host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE
            )[0]
            with socket.socket(family, kind, protocol) as found:
                found.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
                found.bind(place)
        except OSError as error:
            yield Finding("error", f"{key}: {address}: {bind_fault(error, key)}")
        else:
            yield Finding("ok", f"{key}: {address} is free")


def look_at_peers(config: NodeConfig) -> Iterator[Finding]:
    """Check whether the configured peers accept connections."""
    from canopy.wire.addresses import split_address

    for address in config.peers:
        began = time.perf_counter()
        try:
            with socket.create_connection(split_address(address), DIAL):
                took = (time.perf_counter() - began) * 1e3
        except OSError as error:
            reason = error.strerror or str(error)
            yield Finding(
                "warning",
                f"{address} is not reached: {reason}",
                "does a node run there? Is a firewall between? Is `advertise` right there?",
            )
        else:
            yield Finding("ok", f"{address} accepts connections ({took:.1f} ms)")
