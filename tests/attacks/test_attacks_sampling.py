"""Who pushes itself fills no view, where views are ranked (attack 8)."""

from __future__ import annotations

import time
from pathlib import Path
from random import Random

import pytest
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from canopy.wire.keys.authority import revoke
from canopy.wire.keys.certificates import KeySigner, node_id, raw_key
from canopy.wire.keys.rotation import rotate
from overlay.links.events import LinkDown, SessionEnd
from overlay.lower_random.access_points import AccessPoints
from overlay.lower_random.constants import HEARD_FOR, MAX_HEARD, RENEW_EVERY
from overlay.lower_random.messages import Neighbour, Shuffle, ShuffleReply
from overlay.lower_random.peer_records import PeerRecords
from overlay.lower_random.ranked_slots import HeardPeers, RankedSlots
from overlay.lower_random.view import ShuffleDue, View
from overlay.machine import Peer
from overlay.rights import Role
from overlay.settings import ViewSettings
from tests.support.real.keys import Keys
from tests.support.world import WorldNode, one_node, peer

SIZE = 20
LIARS = [peer(f"liar{number}") for number in range(30)]
HONEST = [peer(f"honest{number}") for number in range(120)]


def viewer(sampling: str) -> tuple[WorldNode, View]:
    port = one_node("me")
    settings = ViewSettings(size=SIZE, sampling=sampling)  # type: ignore[arg-type]
    view = View(port, settings, AccessPoints(port, settings))
    port.add(view)
    return port, view


def tell(port: WorldNode, by: Peer, *named: Peer) -> None:
    port.hear(Shuffle(tuple(Neighbour(each, 0) for each in named), (), ()), by)


def pushed(sampling: str) -> float:
    """The share of liars in a view when each of a fifth of all nodes has pushed ten times as often
    as an honest one."""
    port, view = viewer(sampling)
    rng = Random(1)
    for number in range(600):
        if number % 11 == 0:
            port.hear(ShuffleDue())
        if number % 11 == 5:
            tell(port, rng.choice(HONEST), *rng.sample(HONEST, 8))
        else:
            tell(port, rng.choice(LIARS), *rng.sample(LIARS, 8))
    return sum(each in LIARS for each in view.peers()) / len(view)


def test_pushing_gains_a_ranked_view_nothing() -> None:
    assert pushed("shuffle") > 0.6
    assert pushed("ranked") < 0.4


def test_places_that_are_drawn_again_go_to_who_was_heard_of_and_not_to_who_is_heard() -> None:
    """Honest nodes were named once, and liars are named all the time until each place was drawn
    again."""
    port, view = viewer("ranked")
    tell(port, HONEST[0], *HONEST)
    peers = {each.id: each for each in (*HONEST, *LIARS)}
    for period in range(RENEW_EVERY * SIZE):
        port.hear(ShuffleDue())
        for asked, _ in port.sent_to(Shuffle):
            port.hear(ShuffleReply((), (), ()), peers[asked])
        tell(port, LIARS[period % len(LIARS)], *LIARS)
    assert sum(each in LIARS for each in view.peers()) < 0.4 * SIZE


def test_exchanges_name_others_than_neighbours() -> None:
    """Else there would be nodes of which a node never hears: views change slowly."""
    port, _ = viewer("ranked")
    tell(port, HONEST[0], *HONEST)
    port.sent_to(ShuffleReply)
    named: set[str] = set()
    for number in range(60):
        tell(port, HONEST[number])
        ((_, reply),) = port.sent_to(ShuffleReply)
        assert len(reply.neighbours) == 8
        named |= {entry.peer.id for entry in reply.neighbours}
    assert len(named) > 3 * SIZE


def test_of_too_many_that_were_heard_of_a_sample_is_kept() -> None:
    heard, rng = HeardPeers(Random(3)), Random(4)
    honest = [peer(f"h{number}") for number in range(4 * MAX_HEARD)]
    liars = [peer(f"l{number}") for number in range(MAX_HEARD)]
    for now, each in enumerate(honest):
        heard.learn(Neighbour(each, 0), now // 50)
        for liar in rng.sample(liars, 10):
            heard.learn(Neighbour(liar, 0), now // 50)
    assert len(heard) == MAX_HEARD
    assert 0.12 < sum(each in liars for each in heard.peers()) / MAX_HEARD < 0.28


def test_who_has_not_spoken_for_long_is_forgotten_wherever_the_news_has_been() -> None:
    heard = HeardPeers(Random(3))
    heard.learn(Neighbour(HONEST[0], 0), 10)
    heard.learn(Neighbour(HONEST[1], HEARD_FOR), 10)
    heard.learn(Neighbour(HONEST[2], HEARD_FOR + 1), 10)
    heard.learn(Neighbour(HONEST[0], 9), 12)  # older news than what is known
    assert heard.entry(HONEST[0].id, 12).age == 2
    heard.expire(11)
    assert heard.peers() == [HONEST[0]]
    heard.expire(10 + HEARD_FOR)
    assert heard.peers() == [HONEST[0]]
    heard.expire(11 + HEARD_FOR)
    assert not len(heard)


def test_who_is_lost_is_not_remembered() -> None:
    port, view = viewer("ranked")
    tell(port, HONEST[0], *HONEST)
    lost = next(each for each in HONEST[1:] if each not in view.peers())
    port.hear(LinkDown(lost, "silent", left=False, end=SessionEnd.UNREACHABLE))
    for _ in range(100):
        port.hear(ShuffleDue())
        tell(port, HONEST[0])
    assert lost not in view.peers()
    replies = [reply for _, reply in port.sent_to(ShuffleReply)]
    assert all(lost != entry.peer for reply in replies for entry in reply.neighbours)


def test_of_one_node_one_exchange_a_period_is_taken() -> None:
    port, view = viewer("ranked")
    tell(port, LIARS[0], LIARS[0])
    tell(port, LIARS[0], LIARS[1])
    assert (view.peers(), port.counts["shuffles_beyond_turn"]) == ((LIARS[0],), 1)
    port.hear(ShuffleDue())
    tell(port, LIARS[0], LIARS[1])
    assert len(view) == 2


def test_hearsay_changes_no_address() -> None:
    port, view = viewer("ranked")
    moved = Peer(HONEST[0].id, "elsewhere:1")
    tell(port, HONEST[1], HONEST[0])
    tell(port, LIARS[0], moved)
    assert HONEST[0] in view.peers()
    tell(port, moved, moved)
    assert moved in view.peers()


def test_who_has_no_slot_any_more_is_named_and_the_order_does_not_matter() -> None:
    def filled(order: list[Peer]) -> set[str]:
        slots = RankedSlots(SIZE, 0, lambda each: False, Random(5))
        kept = set()
        for each in order:
            kept |= {each.id}
            kept -= {slots.offer(each)}
        return kept

    peers = HONEST[:60]
    assert len(filled(peers)) == SIZE
    assert filled(peers) == filled(peers[::-1])
    assert filled(peers[: SIZE - 1]) == {each.id for each in peers[: SIZE - 1]}


def test_a_node_that_is_lost_gives_its_place_to_another() -> None:
    port, view = viewer("ranked")
    tell(port, HONEST[0], *HONEST[:SIZE])
    lost = view.peers()[0]
    port.hear(LinkDown(lost, "silent", left=False, end=SessionEnd.UNREACHABLE))
    assert lost not in view.peers()
    tell(port, HONEST[1], HONEST[30])
    assert HONEST[30] in view.peers()
    assert len(view) == SIZE
    assert not port.sent_to(ShuffleReply)[0][1].rings


def named(signer: KeySigner) -> Neighbour:
    """As the node with this signer names itself."""
    who = Peer(signer.sign(b"").signer, "127.0.0.1:1")
    return Neighbour(who, 0, record=PeerRecords(who, signer, time.time).own())


class MadeUp(KeySigner):
    """Signs as a node that nobody has certified, with any key, and shows another's certificate."""

    def __init__(self, key: Ed25519PrivateKey, generation: int, liar: KeySigner) -> None:
        super().__init__(key, generation)
        self._liar = liar

    def chain(self) -> tuple[bytes, ...]:
        return self._liar.chain()


def test_ids_that_the_overlay_has_not_certified_enter_no_view(tmp_path: Path) -> None:
    """A key makes as many ids as there are generations, and keys cost nothing: of what signs,
    only what the issuer has signed is taken."""
    keys = Keys(tmp_path)
    folder = keys.folder("liar", Role.MEMBER)
    liar, me = keys.security(folder).signer(), keys.security(keys.folder("me"))
    records = PeerRecords(peer("me"), me.signer(), time.time)
    assert records.is_good(named(liar))
    own, another = folder.key(), Ed25519PrivateKey.generate()
    for key, generation in ((own, 2), (own, 2**53), (another, 1)):
        made_up = named(MadeUp(key, generation, liar))
        assert made_up.peer.id == node_id(raw_key(key.public_key()), generation)
        assert not records.is_good(made_up)
    assert not records.is_good(named(KeySigner(own, 1)))  # without its certificate
    leaf = keys.security(keys.folder("leaf", Role.LEAF)).signer()
    assert not records.is_good(named(leaf))
    stranger = Keys(tmp_path / "other").security().signer()
    assert not records.is_good(named(stranger))


def test_a_node_that_is_revoked_leaves_what_others_say_of_views(tmp_path: Path) -> None:
    keys = Keys(tmp_path)
    liar, me = keys.security(keys.folder("liar")).signer(), keys.security(keys.folder("me"))
    records, entry = PeerRecords(peer("me"), me.signer(), time.time), named(liar)
    assert records.is_good(entry)
    revoke(keys.issuer, (entry.peer.id,))
    me.accept(keys.issuer.revocations("canopy")[1])
    assert not records.is_good(entry)


@pytest.mark.parametrize("first", ["old", "new"])
def test_nodes_of_both_roots_are_in_views_while_one_takes_the_others_place(
    tmp_path: Path, first: str
) -> None:
    keys = Keys(tmp_path)
    before = keys.security(keys.folder("before"))
    rotate(keys.issuer, time.time())
    after = keys.security()
    pairs = [(before, after), (after, before)]
    me, other = pairs[first == "new"]
    records = PeerRecords(peer("me"), me.signer(), time.time)
    assert records.is_good(named(other.signer()))
