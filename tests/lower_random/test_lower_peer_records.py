"""Nobody sends others to an address in another node's name, where nodes have keys."""

from __future__ import annotations

import pytest
from msgspec.structs import replace

from canopy.sim.world.signer import SimulatedSigner
from overlay.lower_random.access_points import AccessPoints
from overlay.lower_random.constants import RECORD_HOLDS, RECORD_SKEW
from overlay.lower_random.messages import Neighbour, PeerRecord, RingHint, Shuffle, ShuffleReply
from overlay.lower_random.peer_records import PeerRecords, signed_part
from overlay.lower_random.view import View
from overlay.machine import Peer
from overlay.settings import ViewSettings
from tests.support.world import one_node, peer

NOW = 1_000_000.0


def records(node: str, now: float = NOW) -> PeerRecords:
    return PeerRecords(peer(node), SimulatedSigner(node, "w"), lambda: now)


def entry(node: str, now: float = NOW) -> Neighbour:
    """As the node names itself."""
    return Neighbour(peer(node), 0, record=records(node, now).own())


def a_view(sampling: str = "ranked") -> View:
    port = one_node("me")
    settings = ViewSettings(size=10, sampling=sampling)  # type: ignore[arg-type]
    return View(port, settings, AccessPoints(port, settings), records=records("me"))


def forged(kind: str) -> Neighbour:
    true = entry("victim")
    assert true.record is not None
    elsewhere = Peer("victim", "10.9.9.9:22")
    if kind == "unsigned":
        return replace(true, record=None)
    if kind == "another address":
        return replace(true, peer=elsewhere)
    if kind == "another region":
        return replace(true, peer=replace(true.peer, region="eu", tier=100))
    if kind == "signed by another":
        said = signed_part(elsewhere, true.record.until)
        signature = SimulatedSigner("liar", "w").sign(said)
        return Neighbour(elsewhere, 0, record=PeerRecord(true.record.until, signature))
    if kind == "longer":
        return replace(true, record=replace(true.record, until=true.record.until + 60))
    if kind == "made up":  # whoever makes a key has an id that signs
        own = entry("liar")
        assert own.record is not None
        signer = SimulatedSigner("made-up", "w")
        invented = Peer("made-up", own.peer.address)
        signature = signer.sign(signed_part(invented, own.record.until))
        return Neighbour(invented, 0, record=replace(own.record, signature=signature))
    if kind == "over":
        return entry("victim", NOW - RECORD_HOLDS - RECORD_SKEW - 1)
    return entry("victim", NOW + 2 * RECORD_HOLDS)  # for longer than any honest node says


KINDS = (
    *("unsigned", "another address", "another region", "signed by another", "longer", "over"),
    *("from the future", "made up"),
)


@pytest.mark.parametrize("sampling", ["ranked", "shuffle"])
@pytest.mark.parametrize("kind", KINDS)
def test_what_a_node_has_not_said_itself_is_not_taken(kind: str, sampling: str) -> None:
    view = a_view(sampling)
    view.on_shuffle(peer("liar"), Shuffle((entry("liar"), forged(kind)), (), ()))
    assert [each.id for each in view.peers()] == ["liar"]
    assert view.port.counts["neighbours_refused"] == 1  # type: ignore[attr-defined]


def test_what_is_true_goes_round_and_a_younger_word_counts() -> None:
    view = a_view()
    view.on_shuffle(peer("friend"), Shuffle((entry("friend"), entry("victim")), (), ()))
    view.on_shuffle(peer("other"), Shuffle((entry("other"),), (), ()))
    sent = view.port.sent_to(ShuffleReply)  # type: ignore[attr-defined]
    named = {one.peer.id for _, reply in sent for one in reply.neighbours}
    assert "victim" in named
    moved = Peer("victim", "host:99")
    signer = PeerRecords(moved, SimulatedSigner("victim", "w"), lambda: NOW + 60)
    later = Neighbour(moved, 0, record=signer.own())
    view.on_shuffle(peer("third"), Shuffle((entry("third"), later), (), ()))
    assert moved in view.peers()
    old = replace(entry("victim"), age=0)
    view.on_shuffle(peer("fourth"), Shuffle((entry("fourth"), old), (), ()))
    assert moved in view.peers()


def test_who_was_met_and_has_not_said_where_it_is_is_not_passed_on() -> None:
    view = a_view()
    view._take(Neighbour(peer("met"), 0), [])
    assert "met" in [each.id for each in view.peers()]
    view.on_shuffle(peer("asks"), Shuffle((entry("asks"),), (), ()))
    ((_, reply),) = view.port.sent_to(ShuffleReply)  # type: ignore[attr-defined]
    assert [one.peer.id for one in reply.neighbours] == ["me"]


def test_a_node_signs_its_address_again_in_time() -> None:
    now = [NOW]
    mine = PeerRecords(peer("me"), SimulatedSigner("me", "w"), lambda: now[0])
    first = mine.own()
    now[0] += RECORD_HOLDS / 4
    assert mine.own() is first
    now[0] += RECORD_HOLDS / 2
    second = mine.own()
    assert second is not None
    assert mine.is_good(Neighbour(peer("me"), 0, record=second))


def test_a_hint_is_signed_once_though_it_comes_back_with_its_signature() -> None:
    now = [NOW]
    mine = PeerRecords(peer("me"), SimulatedSigner("me", "w"), lambda: now[0])
    hint = RingHint("ring", "key", (1, 1), peer("me"))
    first = mine.hint(hint)
    assert mine.is_good_hint(first)
    now[0] += 1
    assert mine.hint(first) is mine.hint(hint) is first
    now[0] += RECORD_HOLDS * 3 / 4
    later = mine.hint(first)
    assert later.record != first.record
    assert mine.is_good_hint(later)
