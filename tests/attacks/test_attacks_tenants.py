"""What a tenant sees and publishes is what the policy permits, whatever it asks for and says."""

from __future__ import annotations

from collections import Counter
from types import SimpleNamespace
from typing import Any

import msgspec
import pytest

from canopy.sim.world.clients import SimulatedSubscription
from canopy.sim.world.world import World
from canopy.wire.transport.codec import WireCodec
from harness.logs import SHARD
from harness.overlays import READY, acknowledged, settings, wait
from matching import EVERYTHING
from overlay.lower_random.messages import DocumentVersion, Walk
from overlay.machine import Peer, ProtocolError
from overlay.rights import LEAST, Principal, Role
from overlay.tenants import policy
from overlay.tenants.confinement import HARMLESS, RULES, confine, outcome
from overlay.tenants.policy import (
    Bucket,
    Confinement,
    Policy,
    PolicyError,
    Quota,
    TenantPolicy,
    check_policy,
)
from overlay.tenants.quotas import ANSWERS, Quotas
from overlay.upper_tree.messages import (
    ComeAgain,
    Confined,
    EventsRefused,
    Register,
    Registration,
    Renew,
    Visit,
)
from overlay.upper_tree.owner.registrations import leaf_inbox, registry
from overlay.upper_tree.visits import groups_of
from streams.directory.messages import EraseStream, StreamRefused
from streams.log.batches import Row, encode_rows
from streams.log.writers import Asker
from streams.programs.producer.messages import (
    AppendRefused,
    AppendRows,
    JoinFork,
    OpenProducer,
    RowBatch,
)
from streams.programs.reader.messages import (
    CommitPosition,
    Durable,
    ReadFrom,
    ReadingRefused,
    ReadShard,
)
from streams.tenant_rules import STREAM_RULES
from tests.support.shards.producing_world import led
from tests.support.trees import event
from tests.support.world import one_node, peer

ACME = TenantPolicy("type LIKE 'acme.%'", "region = 'eu' AND secret = FALSE", ("acme_*",))
POLICY = Policy(1, {"acme": ACME, "mute": TenantPolicy("", "TRUE")})
KNOWN = Confinement(POLICY)
ALL = "type IS NOT NULL OR type IS NULL OR secret = TRUE"


def changed(version: int, **fields: Any) -> Policy:
    return Policy(version, {"acme": msgspec.structs.replace(ACME, **fields)})


def overlay(*tenants: str, policy: Policy | None = POLICY, **groups: Any) -> World:
    """Three voters of the operators, and a leaf of each tenant."""
    world = World(5, WireCodec(), settings(cluster={"size": 3}, **groups))
    world.roles = {f"n{number}": Role.VOTER for number in range(3)}
    for number, tenant in enumerate(tenants, 3):
        world.roles[f"n{number}"] = Role.LEAF
        world.tenants[f"n{number}"] = tenant
    for number in range(3 + len(tenants)):
        world.add_node(seeds=["n0"] if number else [])
        world.run(0.2)
    wait(world, world.ready, READY, "all ready")
    if policy is not None:
        world.push_policy("n1", policy)
        world.run(1.0)
        versions = {world.node(name).policies.confinement.version for name in world.names()}
        assert versions == {policy.version}
    return world


def seen(world: World, node: str) -> list[Any]:
    came = [one.delivery for one in world.clients.deliveries if one.node == node]
    return sorted(delivery.event.attributes["x"] for delivery in came)


def test_every_message_of_a_leaf_has_a_rule_or_is_harmless() -> None:
    ruled = {kind.__name__ for kind in (*RULES, *STREAM_RULES)}
    assert ruled | HARMLESS == set(LEAST[Role.LEAF].split()) | {"EventFacts", "HalfNotKnown"}
    assert not ruled & HARMLESS


def test_what_a_tenant_asks_for_is_intersected_and_operators_are_not() -> None:
    world = overlay("acme")
    broad = world.subscribe("n3", ALL)
    world.subscribe("n2", ALL)
    acknowledged(world)
    for number, (region, secret) in enumerate(
        (("eu", False), ("eu", True), ("us", False), ("eu", None), (None, False), ("eu", False))
    ):
        attributes: dict[str, Any] = {"x": number, "type": "t", "region": region, "secret": secret}
        world.publish("n0", {k: v for k, v in attributes.items() if v is not None})
    assert world.settle()
    world.run(3)
    assert broad.failed == ""
    assert seen(world, "n3") == [0, 5]
    assert seen(world, "n2") == [0, 1, 2, 3, 4, 5]


def test_what_nothing_would_remain_of_is_refused_with_the_policy_s_name() -> None:
    world = overlay("acme", "other")
    for node, selector, reason in (
        ("n3", "region = 'us'", "policy 1 leaves nothing of it: acme may see only region = 'eu'"),
        ("n4", "region = 'eu'", "policy 1 does not name the tenant other"),
    ):
        asked = world.subscribe(node, selector)
        world.run(0.5)
        assert reason in asked.failed
        assert asked.failed.startswith("policy: ")


def test_without_a_policy_that_can_be_applied_tenants_may_nothing() -> None:
    later = msgspec.structs.replace(POLICY, format=2)
    for world in (
        overlay("acme", policy=None),
        overlay("acme", policy=later),
        overlay("acme", tree={"routing": "counting"}),
    ):
        asked = world.subscribe("n3", "region = 'eu'")
        (sent,) = world.publish("n3", {"type": "acme.1"})
        world.run(0.5)
        assert asked.failed.startswith("policy: ")
        assert sent.refused


def test_publishing_is_looked_at_where_the_program_is() -> None:
    world = overlay("acme", "mute")
    world.subscribe("n2", "x > 0")
    acknowledged(world)
    sent = [
        *world.publish("n3", *({"x": n, "type": "acme.a" if n % 2 else "b"} for n in range(1, 9))),
        *world.publish("n4", {"x": 99, "type": "acme.a"}),
    ]
    assert world.settle()
    world.run(2)
    assert seen(world, "n2") == [1, 3, 5, 7]
    assert [bool(one.refused) for one in sent] == [False, True] * 4 + [True]
    assert sent[1].refused == "policy 1 permits acme to publish only: type LIKE 'acme.%'"


def test_a_leaf_that_does_not_look_is_refused_by_the_first_host() -> None:
    """Its node says that everything is permitted; hosts go by their own policy."""
    world = overlay("acme")
    world.subscribe("n2", "x > 0")
    acknowledged(world)
    liar = world.node("n3")
    liar.policies.confinement = Confinement(changed(1, publish="TRUE", subscribe="TRUE"))
    allowed = world.publish("n3", {"x": 1, "type": "acme.a"})
    sent = world.publish(
        "n3", *({"x": n, "type": "acme.b" if n == 4 else "b"} for n in range(2, 9)), receipt=True
    )
    world.run(5)
    assert seen(world, "n2") == [1, 4]
    assert not allowed[0].refused
    assert any("policy 1 does not permit" in failure for failure in world.clients.failures), sent
    assert liar.counters["events_refused"] == 6
    assert not liar.publisher.unaccepted
    refusals = [world.node(name).counters.get("policy_refused", 0) for name in ("n0", "n1", "n2")]
    assert sum(refusals) >= 6


@pytest.mark.parametrize("widens", [False, True])
def test_another_policy_reaches_the_subscriptions_that_there_are(widens: bool) -> None:
    world = overlay("acme")
    world.subscribe("n3", "x > 0")
    acknowledged(world)
    world.publish("n0", *({"x": n, "region": "eu", "secret": False, "tier": 1} for n in (1, 2)))
    world.run(2)
    new = "region = 'us'" if widens else "region = 'eu' AND secret = FALSE AND tier = 2"
    world.push_policy("n1", changed(2, subscribe=new))
    world.run(3)
    assert sum(world.node(n).counters.get("registrations_narrowed", 0) for n in world.names()) == 1
    for n, (region, tier) in enumerate((("eu", 1), ("eu", 2), ("us", 1)), 3):
        world.publish("n0", {"x": n, "region": region, "secret": False, "tier": tier})
    world.run(3)
    assert seen(world, "n3") == ([1, 2, 5] if widens else [1, 2, 4])


def test_an_older_policy_is_not_taken_and_a_node_that_was_away_gets_the_newest() -> None:
    world = overlay("acme")
    world.push_policy("n1", changed(3, publish="TRUE"))
    world.push_policy("n2", changed(2))
    world.run(1)
    assert world.roles is not None
    world.roles["n4"] = Role.VOTER
    world.add_node(seeds=["n0"])
    world.run(10)
    assert {world.node(name).policies.confinement.version for name in world.names()} == {3}


def test_a_new_primary_narrows_by_the_policy_that_it_knows() -> None:
    world = overlay("acme")
    world.subscribe("n3", "x > 0")
    acknowledged(world)
    world.push_policy("n1", changed(2, subscribe="tier = 2"))
    primary = next(n for n in world.names() if world.node(n).clusters.role == "primary")
    world.crash(primary)
    world.run(30)
    source = next(n for n in ("n0", "n1", "n2") if n != primary)
    world.publish(source, {"x": 1, "region": "eu", "secret": False}, {"x": 2, "tier": 2})
    world.run(5)
    assert seen(world, "n3") == [2]


def test_claims_about_a_tenant_are_written_by_the_owner_alone() -> None:
    me = Peer("aa", "aa:1")
    claimed = Confined("operators", "TRUE")
    liar = Registration("aa.1.1/0", "x", me, "x > 1", EVERYTHING, 0, claimed)
    found = confine(KNOWN, "acme", liar)
    assert found.confined == Confined("acme", "x > 1")
    assert found.selector == f"x > 1 AND {ACME.subscribe}"
    world = overlay("acme")
    guard, taken = world.node("n0").guard, []
    guard._dispatch = lambda peer, message: taken.append(message)
    guard._known["aa"] = Principal("aa", Role.LEAF, "")
    guard.dispatch(me, Register(1, (liar,)))
    assert taken[0].registrations[0].confined == Confined("", "x > 1")
    guard._known["aa"] = Principal("aa", Role.MEMBER, "")
    guard.dispatch(me, Register(1, (liar,)))
    assert taken[1].registrations[0].confined is None


def test_a_visit_is_looked_at_event_by_event() -> None:
    good, bad = event(1, x=1, type="acme.a"), event(2, x=1, type="b")
    origin = Peer(good.publisher, "p:1")
    sender = Principal(good.publisher, Role.LEAF, "acme")
    visit = Visit(origin, 1, ("x",), (bad, good), apart=((("type",), (1,)),))
    found = outcome(RULES, KNOWN, sender, visit)
    assert isinstance(found.message, Visit)
    assert groups_of(found.message) == [(("type",), [good])]
    assert found.answers == (EventsRefused(bad.incarnation, (bad.sequence,), 1),)
    assert outcome(RULES, KNOWN, sender, Visit(origin, 1, ("x",), (bad,))).message is None


def test_what_no_tenant_says_ends_its_session() -> None:
    with pytest.raises(ProtocolError, match="not for a tenant"):
        outcome({}, KNOWN, Principal("aa", Role.LEAF, "acme"), Register(1, ()))


def test_a_policy_that_cannot_hold_is_refused() -> None:
    many = " OR ".join(f"x{n} = 1" for n in range(17))
    for subscribe, reason in (("x >", "acme, subscribe"), (many, "OR of 17 conjunctions")):
        with pytest.raises(PolicyError, match=reason):
            check_policy(changed(1, subscribe=subscribe))


def test_a_narrowed_selector_that_is_too_large_is_refused() -> None:
    world = overlay("acme")
    long = "x IN (" + ", ".join(map(str, range(100_000, 102_340))) + ")"
    asked = world.subscribe("n3", long)
    world.run(1)
    assert "longer than" in asked.failed
    assert Counter(world.node("n3").counters)["rights_refused"] == 0


def rows(*each: dict[str, Any]) -> RowBatch:
    return RowBatch(len(each), encode_rows([Row(attributes) for attributes in each]))


def test_streams_are_read_and_appended_to_as_the_policy_says() -> None:
    rules, sender = {**RULES, **STREAM_RULES}, Principal("aa", Role.LEAF, "acme")
    read = ReadShard("s", 1, ReadFrom("first"), "x > 1", 10, permitted="TRUE")
    taken = outcome(rules, KNOWN, sender, read).message
    assert isinstance(taken, ReadShard)
    assert (taken.selector, taken.permitted) == ("x > 1", ACME.subscribe)
    stranger = outcome(rules, KNOWN, Principal("bb", Role.LEAF, "other"), read)
    assert stranger.message is None
    assert isinstance(stranger.answers[0], ReadingRefused)
    good = AppendRows("s", 1, "p", 1, 0, (rows({"type": "acme.1"}, {"type": "acme.2"}),))
    asker = Asker("acme", ("acme_*",))  # for the leader, who knows what the stream is called
    appended = msgspec.structs.replace(good, producer="acme/p", asker=asker)
    assert outcome(rules, KNOWN, sender, good).message == appended
    for batch, code in (
        (rows({"type": "acme.1"}, {"type": "b"}), "policy"),
        (RowBatch(1, b"garbage"), "malformed"),
    ):
        refused = outcome(rules, KNOWN, sender, AppendRows("s", 1, "p", 1, 0, (batch,)))
        assert refused.message is None
        assert isinstance(refused.answers[0], AppendRefused)
        assert refused.answers[0].code == code
    erased = outcome(rules, KNOWN, sender, EraseStream(1, "s"))
    assert erased.message is None
    assert isinstance(erased.answers[0], StreamRefused)


def test_names_by_which_programs_end_one_another_are_each_tenant_s_own() -> None:
    """Who reads as the operators' durable consumer would move its position, and with it past rows
    that nobody has read; who opens a producer ends its session."""
    rules, sender = {**RULES, **STREAM_RULES}, Principal("aa", Role.LEAF, "acme")

    def heard(message: Any) -> Any:
        return outcome(rules, KNOWN, sender, message).message

    durable = Durable("billing", "t", False, 0)
    read = ReadShard("s", 1, ReadFrom("first"), "", 10, durable)
    assert heard(read).durable == msgspec.structs.replace(durable, name="acme/billing")
    assert heard(CommitPosition("s", 1, "billing", 1, 9)).durable == "acme/billing"
    assert heard(OpenProducer("s", 1, "meter", "t")).producer == "acme/meter"
    assert heard(OpenProducer("s", 1, "@aa", "t")).producer == "@aa"  # the node's own
    assert heard(JoinFork("s", 1, "meter", 1, 1)).producer == "acme/meter"
    long = "x" * 128
    for message in (
        ReadShard("s", 1, ReadFrom("first"), "", 10, Durable(long, "t", False, 0)),
        CommitPosition("s", 1, long, 1, 9),
        OpenProducer("s", 1, long, "t"),
    ):
        assert heard(message) is None


@pytest.mark.parametrize("kind", [OpenProducer, AppendRows, JoinFork])
def test_nobody_appends_as_another_node(kind: Any) -> None:
    """It would end what that node appends: what its streams capture, and its traces."""
    world, leader, _ = led()
    more = {AppendRows: (1, 0, (rows({"a": 1}),)), OpenProducer: ("t",), JoinFork: (1, 1)}
    handler = world.servers[leader.id].handlers()[kind]
    with pytest.raises(ProtocolError, match="another node"):
        handler(peer("liar"), kind(SHARD, 1, "@victim", *more[kind]))
    handler(peer("victim"), kind(SHARD, 1, "@victim", *more[kind]))


def test_a_registration_replaces_no_other_node_s() -> None:
    """Their ids can be guessed: node, incarnation and a number."""
    world = overlay("acme", "acme")
    victim = world.subscribe("n1", "x > 1")
    acknowledged(world)
    liar = world.node("n3")
    forged = Registration(f"{victim.identity}/0", "x", liar.me, "x > 99", EVERYTHING)
    for name in ("n0", "n1", "n2"):
        liar.turns.begin()
        liar.links.send(world.node(name).me, Register(liar.incarnation, (forged,)))
        liar.links.flush()
    world.run(1)
    world.publish("n0", {"x": 5})
    world.run(2)
    assert victim.failed == ""
    assert seen(world, "n1") == [5]
    refused = [world.node(name).counters.get("rights_refused", 0) for name in ("n0", "n1", "n2")]
    assert refused == [1, 1, 1]


def test_leaves_get_what_they_want_and_pass_nothing_on() -> None:
    """A delegate that is a leaf would be refused by those to whom it passes its share on."""
    world = overlay(*["acme"] * 6, tree={"fan_out": 3, "delegates": "members"})
    for number in range(3, 9):
        world.subscribe(f"n{number}", "x > 0")
    world.subscribe("n1", "x > 0")
    acknowledged(world)
    for round_ in range(3):
        world.publish("n0", *({"x": 1, "region": "eu", "secret": False} for _ in range(2)))
        world.run(2 + round_)
    assert [len(seen(world, f"n{number}")) for number in (1, *range(3, 9))] == [6] * 7
    counts = [world.node(name).counters for name in world.names()]
    assert not any(one.get("rights_refused") or one.get("rights_withheld") for one in counts)


def test_a_leaf_over_its_quota_is_refused_and_hears_why() -> None:
    tight = changed(1, publish="TRUE", quota=Quota(events=5, subscriptions=2))
    world = overlay("acme", policy=tight)
    world.subscribe("n1", "x > 0")
    acknowledged(world)
    first = world.publish("n3", *({"x": n} for n in range(1, 11)), receipt=True)
    world.run(1)
    world.publish("n3", *({"x": n} for n in range(11, 31)), receipt=True)
    world.run(1)
    assert seen(world, "n1") == list(range(1, 11))
    assert not any(one.refused for one in first)
    assert any("the quota is 5 events per second" in text for text in world.clients.failures)
    assert sum(world.node(n).counters.get("quota_refused", 0) for n in world.names()) == 20
    world.run(5)
    world.publish("n3", {"x": 31})
    world.run(1)
    assert seen(world, "n1")[-1] == 31
    asked = world.subscribe("n3", "x = 1 OR y = 2 OR z = 3")
    world.run(1)
    assert "gives a node of acme 2 registrations" in asked.failed


def test_long_selectors_of_a_leaf_are_taken_a_few_at_a_time() -> None:
    """A megabyte of them at once would have its owner stand still for seconds."""
    port = one_node()
    quotas = Quotas(port, SimpleNamespace(confinement=KNOWN))
    leaf = Principal("aa", Role.LEAF, "")

    def of(length: int, count: int) -> Register:
        text = "x LIKE '" + "y" * (length - 9) + "'"
        me = Peer("aa", "aa:1")
        made = [Registration(f"aa.1.{n}/0", "x", me, text, EVERYTHING) for n in range(count)]
        return Register(1, tuple(made))

    short, long = of(200, 64), of(16_000, 64)
    assert quotas.shortened(leaf, short) == (short, 0)
    left, cut = quotas.shortened(leaf, long)
    assert isinstance(left, Register)
    assert (len(left.registrations), cut) == (4, 60)
    assert quotas.shortened(leaf, of(16_000, 1)) == (None, 1)
    read = ReadShard("s", 1, ReadFrom("first"), "x = 1 OR " * 1_000 + "x = 2", 10)
    assert quotas.shortened(leaf, read) == (None, 1)
    port.world.now += 1.0
    assert quotas.shortened(leaf, read) == (read, 0)  # it is asked for again
    assert quotas.shortened(leaf, short) == (short, 0)


@pytest.mark.parametrize("question", [Renew(1, ()), DocumentVersion("policy", 0)])
def test_what_costs_much_to_answer_counts_for_many_questions(question: Any) -> None:
    quotas = Quotas(one_node(), SimpleNamespace(confinement=KNOWN))
    leaf = Principal("aa", Role.LEAF, "")
    taken = sum(quotas.outcome(leaf, question) is None for _ in range(1_000))
    assert 20 <= taken <= 80


def test_a_renewal_names_each_tree_once() -> None:
    """An owner goes through a tree's registrations for each: 30,000 times, if they say so."""
    world = overlay("acme")
    world.subscribe("n3", "x > 1")
    acknowledged(world)
    owner = next(n for n in world.names() if "x" in world.node(n).owner.trees)
    node, leaf = world.node(owner), world.node("n3").me
    node.turns.begin()
    node.guard.dispatch(leaf, Renew(1, (("x", 1, 1), ("y", 1, 1))))
    with pytest.raises(ProtocolError, match="twice"):
        node.guard.dispatch(leaf, Renew(1, (("x", 1, 1), ("y", 1, 1)) * 15_000))


def share(monkeypatch: pytest.MonkeyPatch, registrations: int, trees: int, at_once: int) -> None:
    """What a leaf may have, and the trees that it may have planted at once, none later."""
    for module in (policy, registry):
        monkeypatch.setattr(module, "LEAF_REGISTRATIONS", registrations)
        monkeypatch.setattr(module, "LEAF_TREES", trees)
    monkeypatch.setattr(registry, "PLANTED_AT_ONCE", float(at_once))
    monkeypatch.setattr(registry, "PLANTED_RATE", 0.0)


def held(world: World, leaf: str) -> list[tuple[int, int]]:
    """The leaf's registrations and trees, by the logs of all voters."""
    id_ = world.node(leaf).me.id
    return [world.node(name).owner.state.leaves.of(id_) for name in ("n0", "n1", "n2")]


def end(world: World, asked: SimulatedSubscription) -> None:
    """End the only subscription of a node, which may not have been acknowledged."""
    (asked.identity,) = world.node(asked.node).clients.subscriptions
    world.unsubscribe(asked)


def test_a_leaf_hears_at_once_that_it_has_its_share(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each alternative of a selector counts. There is room again when subscriptions end; what
    operators' nodes have is not counted."""
    share(monkeypatch, registrations=10, trees=4, at_once=100)
    world = overlay("")
    first = world.subscribe("n3", "x IN (1, 2, 3) OR y = 1 OR z = 1")
    world.subscribe("n3", "x = 7 OR y = 8 OR z = 9")
    acknowledged(world)
    world.run(0.5)
    assert held(world, "n3") == [(6, 3)] * 3
    many = world.subscribe("n3", " OR ".join(f"x > {n} AND y = {n}" for n in range(5)))
    trees = world.subscribe("n3", "v = 1 OR w = 1")
    for asked, reason in ((many, "10 registrations"), (trees, "registrations in 4 attribute")):
        assert asked.failed.startswith(f"quota: a leaf may have {reason}")
    assert world.node("n3").counters["quota_refused"] == 7
    broad = world.subscribe("n2", " OR ".join(f"x{n} = 1" for n in range(12)))
    world.unsubscribe(first)
    world.run(1)
    again = world.subscribe("n3", " OR ".join(f"x > {n} AND y = {n}" for n in range(5)))
    acknowledged(world)
    assert not again.failed
    assert not broad.failed
    world.publish("n0", {"x": 5, "y": 3})
    world.run(2)
    assert seen(world, "n3") == [5]
    assert held(world, "n3")[0][0] == 8


def test_a_leaf_that_registers_much_waits_and_delays_nobody_else(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """What leaves ask for has its share of an owner's time, whether their nodes keep to it or not;
    a leaf that asks for more hears when to come again."""
    monkeypatch.setattr(leaf_inbox, "PACE", 0.01)
    monkeypatch.setattr(leaf_inbox, "LEAVES_WAITING", 100)
    world = overlay("", "")
    for node in ("n3", "n4"):
        world.subscribe(node, " OR ".join(f"x > {n} AND x < {n}.5" for n in range(150)))
    world.run(0.5)
    before = [max(held(world, name))[0] for name in ("n3", "n4")]
    world.run(1.0)
    mine = world.subscribe("n2", "x > 7")
    world.run(0.2)
    assert mine.acknowledged is not None
    after = [max(held(world, name))[0] for name in ("n3", "n4")]
    shares = [now - then for now, then in zip(after, before, strict=True)]
    assert 100 <= sum(shares) <= 125
    assert 3 * min(shares) >= sum(shares)  # who has nothing waiting leaves its turns to the other
    counters = [world.node(name).counters for name in ("n3", "n4")]
    assert all(each["registrations_put_off"] > 0 for each in counters)
    assert all(each["incidents_put_off"] > 0 for each in counters)
    world.run(4.0)
    assert [max(held(world, name)) for name in ("n3", "n4")] == [(150, 1)] * 2


def test_a_leaf_that_asks_too_much_hears_so_a_few_times_a_second() -> None:
    port = one_node()
    quotas = Quotas(port, SimpleNamespace(confinement=Confinement(None)))
    leaf = Principal("aa", Role.LEAF, "")
    made = tuple(
        Registration(f"r{n}", "x", Peer("aa", ""), "x > 1", EVERYTHING) for n in range(4_000)
    )
    assert quotas.outcome(leaf, Register(1, made)) is None
    answers = [quotas.outcome(leaf, Register(1, made * 2)) for _ in range(100)]
    told = [found.answers[0] for found in answers if found is not None and found.answers]
    assert len(told) == ANSWERS
    assert all(isinstance(each, ComeAgain) and each.what == "Register" for each in told)
    assert all(found is not None and found.refused == 8_000 for found in answers)
    request, answer = (len(WireCodec().encode([each])) for each in (Register(1, made * 2), told[0]))
    assert answer < request / 3
    port.world.now += 60
    walk = Walk(Peer("aa", ""), 1, ("x",), 1, 3, 4, ())
    found = [quotas.outcome(leaf, walk) for _ in range(2_000)]
    told = [each.answers[0] for each in found if each is not None and each.answers]
    assert [each.what for each in told] == ["Walk"] * int(ANSWERS)


def test_an_owner_takes_no_more_of_a_leaf_that_does_not_look(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Twice its share, since its former process may have had one; and few new trees. What has
    ended is forgotten, and each voter's log says the same."""
    share(monkeypatch, registrations=10, trees=4, at_once=5)
    world = overlay("")
    monkeypatch.setattr(world.node("n3").policies, "_is_leaf", False)
    wide = world.subscribe("n3", " OR ".join(f"w{n} = 1" for n in range(40)))
    world.run(8)  # it asks again and again
    assert held(world, "n3") == [(5, 5)] * 3
    counters = [world.node(name).counters for name in ("n0", "n1", "n2")]
    assert sum(each.get("trees_created", 0) for each in counters) == 5
    assert sum(each.get("quota_refused", 0) for each in counters) >= 35
    end(world, wide)
    world.run(1)
    assert held(world, "n3") == [(0, 0)] * 3
    world.subscribe("n2", "x > 0 AND x < 0.5 OR x = 77")
    acknowledged(world)
    deep = world.subscribe("n3", " OR ".join(f"x > {n} AND x < {n}.5" for n in range(50)))
    world.run(4)
    assert held(world, "n3") == [(20, 1)] * 3
    end(world, deep)
    world.run(1)
    small = world.subscribe("n3", "x = 3")
    acknowledged(world)
    assert not small.failed
    assert held(world, "n3") == [(1, 1)] * 3


def test_buckets_fill_by_their_rate() -> None:
    bucket = Bucket()
    assert bucket.take(8, 2, 8, 100.0)
    assert not bucket.take(1, 2, 8, 100.0)
    assert bucket.take(2, 2, 8, 101.0)
    assert not bucket.take(1, 2, 8, 101.4)
    assert bucket.take(100, 2, 8, 200.0)  # more than it holds passes when it is full
    assert not bucket.take(1, 2, 8, 201.0)
