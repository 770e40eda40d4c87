"""Faults in signed events and in sealed payloads."""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import Any

import msgspec
from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey
from msgspec.structs import replace as changed

from bench.mutations.planting import fault, replace, replace_constant
from canopy.wire.keys import seals
from canopy.wire.keys.certificates import KeySigner
from canopy.wire.keys.seals import Seals
from overlay.links.statements import Signature
from overlay.upper_tree.event_proofs import leaf_of

SIGNATURES = "tests/attacks/events/test_attacks_signatures.py"
SEALS = "tests/attacks/events/test_attacks_seals.py"


class _NoAttributes:
    def encode(self, attributes: Mapping[str, Any]) -> bytes:
        return msgspec.msgpack.encode({})


@fault("A29", SIGNATURES, "test_nothing_of_an_event_can_be_altered")
def signing_leaves_the_payload_out() -> None:
    """What is signed has attributes and identity of an event, and not its payload."""
    original = leaf_of

    replace(leaf_of, lambda event: original(changed(event, payload=b"")))


@fault("A29", SIGNATURES, "test_no_part_of_a_proof_can_be_altered_or_taken_for_another_s")
def signing_believes_any_key() -> None:
    """It is not looked whether a publisher's id follows from the key that has signed."""

    def any_key(self: KeySigner, signature: Signature, statement: bytes) -> bool:
        try:
            Ed25519PublicKey.from_public_bytes(signature.key).verify(signature.seal, statement)
        except (InvalidSignature, ValueError):
            return False
        return True

    replace(KeySigner.holds, any_key)


@fault("A41", SEALS, "test_an_envelope_belongs_to_its_event")
def sealing_binds_no_attributes() -> None:
    """An envelope opens with whatever attributes, so that a host may move it to another event."""
    replace_constant(seals, "_ATTRIBUTES", _NoAttributes())


@fault("A41", SEALS, "test_no_number_is_used_twice")
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
