"""The cache of cluster descriptions (P2: ring position is a hint; the epoch decides)."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from overlay.chord.constants import HINTS_MOST, UNREACHABLE_FOR
from overlay.chord.keys import attribute_key, in_arc, key_of
from overlay.chord.messages import Cluster
from overlay.chord.ring.known_clusters import KnownClusters, overlaps
from overlay.lower_random.messages import RingHint
from overlay.machine import Key, Peer

KEYS = st.integers(0, 63).map(lambda n: f"{n << 154:040x}")


def peer(name: str) -> Peer:
    return Peer(name, f"host:{name}")


def cluster(key: Key, start: Key, version: tuple[int, int] = (1, 0), by: str = "p") -> Cluster:
    return Cluster("ring", key, start, version, peer(by))


def test_keys_are_sha1_in_hexadecimal() -> None:
    assert key_of("abc") == "a9993e364706816aba3e25717850c26c9cd0d89d"  # FIPS 180
    assert attribute_key("magnitude") == key_of("attr:magnitude")


@given(KEYS, KEYS, KEYS)
def test_an_arc_is_what_one_walks_over_clockwise(key: Key, start: Key, end: Key) -> None:
    k, s, e = (int(x, 16) >> 154 for x in (key, start, end))
    at, walked = s, []
    while not walked or at != e:
        at = (at + 1) % 64
        walked.append(at)
    assert in_arc(key, start, end) == (k in walked)


@given(KEYS, KEYS, KEYS, KEYS)
def test_arcs_overlap_if_they_have_a_key_in_common(a: Key, b: Key, c: Key, d: Key) -> None:
    common = any(
        in_arc(f"{n << 154:040x}", a, b) and in_arc(f"{n << 154:040x}", c, d) for n in range(64)
    )
    assert overlaps(cluster(b, a), cluster(d, c)) == common


@given(st.lists(st.tuples(KEYS, st.integers(0, 5)), max_size=40))
def test_the_newest_version_per_cluster_wins(heard: list[tuple[Key, int]]) -> None:
    known = KnownClusters(64)
    newest: dict[Key, int] = {}
    for key, number in heard:
        news = known.learn(cluster(key, key, (1, number)))
        assert news == (number > newest.get(key, -1))
        newest[key] = max(newest.get(key, -1), number)
    assert [(c.key, c.version[1]) for c in known] == sorted(newest.items())


@given(st.lists(KEYS, min_size=1, unique=True), KEYS)
def test_a_whole_ring_names_the_owner_of_every_key(keys: list[Key], key: Key) -> None:
    keys.sort()
    known = KnownClusters(64)
    for at, end in enumerate(keys):
        known.learn(cluster(end, keys[at - 1]))
    expected = next((end for end in keys if end >= key), keys[0])
    owner = known.owner(key)
    assert owner is not None
    assert owner.key == expected


def test_of_an_old_and_a_split_off_description_the_part_wins() -> None:
    known = KnownClusters(8)
    known.learn(cluster("8" * 40, "0" * 40))  # from before the split
    known.learn(cluster("4" * 40, "0" * 40, (2, 0)))
    owner = known.owner("3" * 40)
    assert owner is not None
    assert owner.key == "4" * 40


def test_a_gap_has_no_owner() -> None:
    known = KnownClusters(8)
    known.learn(cluster("8" * 40, "6" * 40))
    assert known.owner("3" * 40) is None
    assert [c.key for c in known.before("3" * 40)] == ["8" * 40]


@given(st.lists(KEYS, unique=True), KEYS)
def test_before_and_after_go_once_around(keys: list[Key], key: Key) -> None:
    known = KnownClusters(64)
    for end in keys:
        known.learn(cluster(end, end))
    ring = 1 << 160
    gone = lambda k: (int(key, 16) - int(k, 16)) % ring or ring  # noqa: E731
    assert [c.key for c in known.before(key)] == sorted(keys, key=gone)
    coming = lambda k: (int(k, 16) - int(key, 16)) % ring  # noqa: E731
    assert [c.key for c in known.after(key)] == sorted((k for k in keys if k != key), key=coming)


def test_the_cache_is_bounded_and_forgets_what_was_not_heard_of_for_longest() -> None:
    known = KnownClusters(3)
    for digit in "1234":
        known.learn(cluster(digit * 40, digit * 40))
        known.learn(cluster("1" * 40, "1" * 40, (1, int(digit))))
    assert [c.key[0] for c in known] == ["1", "3", "4"]


def test_forget_spares_what_is_newer() -> None:
    known = KnownClusters(3)
    known.learn(cluster("1" * 40, "0" * 40, (1, 5)))
    known.forget("1" * 40, (1, 4))
    assert len(known) == 1
    known.forget("1" * 40, (1, 5))
    assert len(known) == 0
    assert known.owner("1" * 40) is None


def test_a_hint_of_a_newer_epoch_discredits_a_description() -> None:
    known = KnownClusters(3)
    known.learn(cluster("1" * 40, "0" * 40, (1, 5)))
    known.learn_hint(RingHint("ring", "1" * 40, (1, 9), peer("p")))
    assert len(known) == 1
    known.learn_hint(RingHint("ring", "1" * 40, (2, 0), peer("q")))
    assert len(known) == 0
    assert [h.primary.id for h in known.hints()] == ["q"]
    known.learn_hint(RingHint("ring", "1" * 40, (1, 0), peer("p")))
    assert [h.primary.id for h in known.hints()] == ["q"]


def test_hints_are_bounded() -> None:
    known = KnownClusters(3)
    for number in range(3 * HINTS_MOST):
        known.learn_hint(RingHint("ring", f"{number:040x}", (1, 0), peer("p")))
    assert len(known.hints()) == HINTS_MOST


def test_who_did_not_answer_is_avoided_for_a_while() -> None:
    known = KnownClusters(3)
    known.mark_unreachable("p", 100.0)
    assert not known.reachable(peer("p"), 100.0 + UNREACHABLE_FOR - 1)
    assert known.reachable(peer("p"), 100.0 + UNREACHABLE_FOR)
    known.mark_unreachable("p", 200.0)
    known.mark_reachable("p")
    assert known.reachable(peer("p"), 200.0)


def test_a_cluster_whose_key_another_owns_under_a_higher_epoch_is_no_more() -> None:
    known = KnownClusters(8)
    part = cluster("4" * 40, "0" * 40, (2, 0), "q")
    assert known.learn(cluster("8" * 40, "4" * 40, (1, 7)))
    assert known.learn(part)
    assert known.learn(cluster("8" * 40, "0" * 40, (3, 0)))  # it took the part back
    assert [c.key[0] for c in known] == ["8"]
    assert not known.learn(part)
    known.learn_hint(RingHint("ring", part.key, part.version, part.primary))
    assert known.hints() == ()
    assert known.learn(cluster("4" * 40, "0" * 40, (4, 0), "q"))  # and split again


def test_who_leads_nothing_is_forgotten() -> None:
    known = KnownClusters(8)
    known.learn(cluster("8" * 40, "4" * 40, by="p"))
    known.learn(cluster("4" * 40, "8" * 40, by="q"))
    known.learn_hint(RingHint("ring", "8" * 40, (1, 0), peer("p")))
    known.forget_primary("p")
    assert [c.primary.id for c in known] == ["q"]
    assert known.hints() == ()
