"""Whatever the network does: in order, once, or reported lost (M3, M5, V3)."""

from __future__ import annotations

from hypothesis import given, settings
from hypothesis import strategies as st

from harness.link_world import Host, LinkWorld, Note
from overlay.settings import LinkSettings

CHANCE = st.sampled_from([0.0, 0.05, 0.3])
ACTION = st.one_of(
    st.tuples(st.just("say"), st.integers(0, 2), st.integers(0, 2)),
    st.tuples(st.just("wait"), st.sampled_from([0.0, 0.01, 0.3, 2.0]), st.just(0)),
    st.tuples(st.just("cut"), st.just(0), st.just(0)),
    st.tuples(st.just("split"), st.integers(0, 2), st.sampled_from([1.0, 10.0])),
    st.tuples(st.just("restart"), st.integers(0, 2), st.booleans()),
    st.tuples(st.just("seed"), st.integers(0, 2), st.integers(0, 2)),
)


class Ledger:
    """Who got what, per incarnation of sender and receiver: the oracle."""

    def __init__(self, world: LinkWorld) -> None:
        self.world = world
        self.sent: dict[Host, dict[str, list[int]]] = {}
        self.number = 0

    def say(self, sender: Host, receiver: Host, count: int) -> None:
        said = self.sent.setdefault(sender, {}).setdefault(receiver.peer.id, [])
        for _ in range(count):
            self.number += 1
            said.append(self.number)
            sender.links.send(receiver.peer, Note(self.number, "x" * (self.number % 90)))
        sender.links.flush()


def check(hosts: list[Host], ledger: Ledger) -> None:
    """For every sender: what each peer got, plus what is reported lost, is what was said."""
    for sender, said in ledger.sent.items():
        for name, numbers in said.items():
            got: list[int] = []
            for receiver in hosts:
                if receiver.peer.id == name:
                    mine = [n for n in receiver.numbers(sender) if n in numbers]
                    assert mine == sorted(mine), "out of order"
                    assert len(mine) == len(set(mine)), "twice"
                    got += mine
            lost = [
                note.number
                for down in sender.downs()
                if down.peer.id == name
                for note in down.lost
                if isinstance(note, Note)
            ]
            assert len(lost) == len(set(lost)), "lost twice"
            if sender.is_alive:
                assert set(got) | set(lost) == set(numbers), "vanished"


@settings(max_examples=60, deadline=None)
@given(
    seed=st.integers(0, 1 << 30),
    loss=CHANCE,
    repeat=CHANCE,
    damage=st.sampled_from([0.0, 0.05]),
    jitter=st.sampled_from([0.0, 0.05, 1.0]),  # 1 s: Hellos are repeated
    small=st.booleans(),
    actions=st.lists(ACTION, min_size=8, max_size=30),
)
def test_in_order_once_or_reported_lost(
    seed: int,
    loss: float,
    repeat: float,
    damage: float,
    jitter: float,
    small: bool,
    actions: list[tuple[str, int, int]],
) -> None:
    limits = LinkSettings(
        window=4_096 if small else 1 << 20, frame=4_096, retransmit_after=0.5, idle_close=3.0
    )
    world = LinkWorld(seed, 0.01, jitter, limits, loss=loss, duplicate=repeat, damage=damage)
    hosts = [world.host(name) for name in "abc"]
    now = list(hosts)
    ledger = Ledger(world)
    for what, one, two in actions:
        if what == "say" and one != two:
            ledger.say(now[one], now[two], 7 if seed % 2 else 60)
        elif what == "wait":
            world.run(one)
        elif what == "cut":
            world.cut()
        elif what == "seed":
            now[one].links.add_seed(f"{'abc'[two]}:1")
            now[one].links.flush()
        elif what == "split":
            alone = now[one]
            world.network.partition([[alone.name]])
            world.run(two)
            world.network.heal()
        elif what == "restart":
            world.kill(now[one], reset=bool(two))
            now[one] = world.host("abc"[one], incarnation=len(hosts))
            hosts.append(now[one])
    world.change(loss=0.0, duplicate=0.0, damage=0.0)
    world.run(120.0)
    check(hosts, ledger)
    for host in now:
        assert not host.links.unacknowledged()
