"""Faults of signed events."""

from __future__ import annotations

from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey
from msgspec.structs import replace as changed

from bench.mutations.planting import fault, replace, replace_constant
from canopy.wire.keys.signing import KeySigner
from overlay.client import Event
from overlay.links.signing import Signature
from overlay.upper_tree import event_proofs
from overlay.upper_tree.event_proofs import EventProofs, Fault, leaf_of

SIGNATURES = "tests/attacks/events/test_attacks_signatures.py"


@fault("keys", SIGNATURES, "test_nothing_of_an_event_can_be_altered")
def signing_leaves_the_payload_out() -> None:
    """What is signed has attributes and identity of an event, and not its payload."""
    original = leaf_of

    def bare(event: Event) -> bytes:
        return original(changed(event, payload=b""))

    replace(leaf_of, bare)


@fault("keys", SIGNATURES, "test_no_part_of_a_proof_can_be_altered_or_taken_for_another_s")
def signing_believes_any_key() -> None:
    """It is not looked whether a publisher's id follows from the key that has signed."""

    def any_key(self: KeySigner, signature: Signature, statement: bytes) -> bool:
        try:
            Ed25519PublicKey.from_public_bytes(signature.key).verify(signature.seal, statement)
        except (InvalidSignature, ValueError):
            return False
        return True

    replace(KeySigner.holds, any_key)


@fault("keys", SIGNATURES, "test_a_host_that_alters_events_is_found_out")
def signing_takes_the_unsigned() -> None:
    """Where only signed events are wanted, an event without a signature is taken."""
    original = EventProofs.fault

    def lenient(self: EventProofs, event: Event) -> Fault:
        return "" if event.proof is None else original(self, event)

    replace(EventProofs.fault, lenient)


@fault("keys", SIGNATURES, "test_a_path_leads_from_one_place_only")
def signing_hashes_pairs_in_any_order() -> None:
    """The hash over two neighbours is the same whichever of them is the left one."""
    original = event_proofs._node

    def sorted_pair(left: bytes, right: bytes) -> bytes:
        return original(*sorted((left, right)))

    replace(event_proofs._node, sorted_pair)


@fault("keys", SIGNATURES, "test_what_is_not_signed_or_was_long_ago")
def signing_never_ends() -> None:
    """A signed event is taken however old it is."""
    replace_constant(event_proofs, "AGE_MOST", float("inf"))
