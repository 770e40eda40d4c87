"""Faults of sealed payloads."""

from __future__ import annotations

import os
import stat
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import msgspec

from bench.mutations.planting import fault, replace, replace_constant
from canopy.client import seals
from canopy.wire.keys import sealing
from canopy.wire.keys.sealing import Opened, Seals, read_seals
from overlay.client import Command

SEALS = "tests/attacks/events/test_attacks_seals.py"


class _NoAttributes:
    def encode(self, attributes: Mapping[str, Any]) -> bytes:
        return msgspec.msgpack.encode({})


@fault("keys", SEALS, "test_an_envelope_belongs_to_its_event")
def sealing_binds_no_attributes() -> None:
    """An envelope opens with whatever attributes, so that a host may move it to another event."""
    replace_constant(sealing, "_ATTRIBUTES", _NoAttributes())


@fault("keys", SEALS, "test_no_number_is_used_twice")
def sealing_goes_on_after_a_fork() -> None:
    """A process that was forked goes on with the numbers of the one before."""
    original = Seals.seal

    def going_on(
        self: Seals, attributes: Mapping[str, Any], payload: bytes, payload_type: str
    ) -> tuple[bytes, str]:
        if self._sealing is not None:
            self._sealing = self._sealing._replace(process=os.getpid())
        return original(self, attributes, payload, payload_type)

    replace(Seals.seal, going_on)


@fault("keys", SEALS, "test_a_file_that_others_can_read_or_that_is_none_is_refused")
def sealing_reads_files_of_everybody() -> None:
    """A seal file is read whoever else can read it."""
    original = read_seals

    def closed(path: Path) -> sealing.SealFile:
        if path.is_file():
            path.chmod(stat.S_IRUSR | stat.S_IWUSR)
        return original(path)

    replace(read_seals, closed)


@fault("keys", SEALS, "test_what_a_host_strips_of_its_seal_is_seen_to_have_none")
def sealing_takes_the_unsealed_for_opened() -> None:
    """What came without a seal is said to have been opened."""
    original = Seals.open

    def trusting(
        self: Seals, attributes: Mapping[str, Any], payload: bytes, payload_type: str
    ) -> Opened:
        found = original(self, attributes, payload, payload_type)
        return found._replace(seal="opened") if found.seal == "none" else found

    replace(Seals.open, trusting)


@fault("keys", SEALS, "test_rows_and_gathered_events_and_groups_are_opened")
def sealing_leaves_rows_of_streams() -> None:
    """Events that are published are sealed, and those that are appended to a stream are not."""
    original = seals.sealed

    def published(sealer: seals.Sealer, command: Command) -> Command:
        return original(sealer, command) if type(command).__name__ == "Publish" else command

    replace(seals.sealed, published)
