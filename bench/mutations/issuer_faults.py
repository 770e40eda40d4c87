"""Faults of what issuers may sign, and of how many ids."""

from __future__ import annotations

from collections.abc import Collection, Mapping

from cryptography import x509

from bench.mutations.planting import fault, replace
from canopy.wire.durable import write_durably
from canopy.wire.keys import chains
from canopy.wire.keys.beliefs import LiveIds
from canopy.wire.keys.chains import Vouched, check_times
from canopy.wire.keys.key_folder import KeyFolder
from canopy.wire.keys.restrictions import Restriction
from canopy.wire.keys.revocations import Revocations, believed_list
from canopy.wire.keys.rotation import RENEW_AGAIN, RenewalTimes
from canopy.wire.process.security import NodeSecurity
from canopy.wire.transport.tls import Chain, TlsError
from overlay.machine import NodeId
from overlay.rights import Principal

ISSUERS = "tests/attacks/certificates/test_attacks_issuers.py"
ROTATION = "tests/attacks/certificates/test_attacks_rotation.py"


@fault("A5", ISSUERS, "test_what_an_issuer_signs_beyond_its_right_is_refused")
def issuers_restriction_ignored() -> None:
    """What a restricted issuer has signed is believed like anybody's."""

    replace(Restriction.refusal, lambda self, role, tenant, place: "")


@fault("A5", ISSUERS, "test_with_an_issuer_all_that_it_has_signed_is_revoked")
def issuers_revoked_issuer_goes_on() -> None:
    """A revoked issuer signs nothing more, and what it has signed is believed."""
    original = NodeSecurity.identify

    def believing(self: NodeSecurity, chain: Chain) -> Principal:
        try:
            return original(self, chain)
        except TlsError as error:
            if "its issuer" not in str(error):
                raise
            return chains.read_chain_der(chain).node.principal

    replace(NodeSecurity.identify, believing)


@fault("A5", ISSUERS, "test_of_two_ids_in_one_place_a_node_believes_one")
def issuers_places_are_not_kept() -> None:
    """Two ids of an issuer may have the same place."""
    original = LiveIds.refusal

    def any_place(self: LiveIds, found: Vouched, now: float, revoked: Collection[NodeId]) -> str:
        reason = original(self, found, now, revoked)
        return "" if "place" in reason else reason

    replace(LiveIds.refusal, any_place)


@fault("A6", ROTATION, "test_a_certificate_for_ten_years_is_refused_whoever_signed_it")
def issuers_sign_for_any_time() -> None:
    """How long a certificate holds is up to who signs it."""

    replace(check_times, lambda certificate: None)


@fault("A6", ROTATION, "test_who_knows_the_new_root_hears_nothing_more_of_the_former_issuer")
def rotation_hears_former_issuers() -> None:
    """A list of revocations is believed below any root, and not the newest alone."""
    original = believed_list

    def any_root(
        data: bytes, overlay: str, roots: list[x509.Certificate]
    ) -> tuple[Revocations, bytes, str]:
        found, _, reason = original(data, overlay, roots)
        return (found, data, "") if found.version else (found, b"", reason)

    replace(believed_list, any_root)


@fault("A6", ROTATION, "test_a_process_that_ends_in_between_leaves_all_of_it_or_nothing")
def rotation_changes_file_by_file() -> None:
    """Files that belong together are replaced one after the other."""

    def one_by_one(self: KeyFolder, files: Mapping[str, bytes]) -> None:
        self.prepare()
        for name, data in files.items():
            write_durably(self.path / name, data)

    replace(KeyFolder.write_together, one_by_one)


@fault(
    "A36",
    "tests/canopy/wire/keys/test_wire_renewal_times.py",
    "test_all_that_ended_at_one_moment_come_back_without_a_storm",
)
def renewals_are_tried_again_in_step() -> None:
    """All nodes whose renewal has failed try again a minute later."""

    def asks(self: RenewalTimes, now: float, has_to: bool = True) -> None:
        self._at = now + RENEW_AGAIN

    replace(RenewalTimes.asks, asks)
