"""The planted faults: what is done to the records of a good run, and what has to come out."""

from __future__ import annotations

import copy
import json
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from zlib import crc32

from canopy.traces.analysis import AnalysisSummary
from canopy.traces.writer import Redaction
from tests.canopy.traces.planted.good_run import EVENTS, Record, Run, copy_of, written
from tests.support.traces.runs import digest

SECOND = 1_000_000_000
PAIRS = 3 * EVENTS


@dataclass(frozen=True)
class Planted:
    """A fault, and the verdict on the run with it."""

    plant: Callable[[Run], object]
    result: str = "exact"
    faults: dict[str, int] = field(default_factory=dict)
    unjudged: int = 0
    withheld: int = 0
    stored: Callable[[Run, Path], None] = Run.store


def nothing(run: Run) -> None:
    """The good run as it is."""


def ahead(seconds: float) -> Callable[[Run], None]:
    """The wall clock of the subscriber 2 is ahead by so many seconds."""

    def plant(run: Run) -> None:
        for record in run.records[2]:
            record["time"] += seconds

    return plant


def clock_set(run: Run) -> None:
    """The wall clock of the subscriber 2 is set by two hours while it runs."""
    at = run.of(2, "deliver")[20]["hlc"]
    for record in run.records[2]:
        if record.get("hlc", 0) > at:
            record["time"] += 7_200.0


def lost(node: int, first: int, count: int) -> Callable[[Run], None]:
    """The overlay does not deliver these events to this node."""

    def plant(run: Run) -> None:
        events = {each["event"] for each in run.of(node, "deliver")[first : first + count]}
        run.never(node, lambda record: record["kind"] == "deliver" and record["event"] in events)

    return plant


def lost_with_a_clock_ahead(run: Run) -> None:
    ahead(3600.0)(run)
    lost(2, 5, 4)(run)


def twice(run: Run) -> None:
    record = run.of(2, "deliver")[5]
    run.also(2, record, hlc=record["hlc"] + 1000)


def stranger(run: Run) -> None:
    """An event is delivered that no selector selects."""
    event = run.of(0, "publish")[3]["event"]
    for record in (each for node in run.records for each in run.records[node]):
        if record.get("event") == event and "digest" in record:
            record["digest"] = digest({"a": 4})
    run.of(0, "publish")[3]["attributes"] = '{"a":4}'


def after_the_end(run: Run) -> None:
    """Subscription 3 ends after the tenth event, and its node goes on delivering."""
    at = run.of(3, "deliver")[9]
    run.also(3, at, kind="unsubscribe", hlc=at["hlc"] + SECOND)


def slow_program(run: Run) -> None:
    """The node of subscriber 2 drops what the program does not read: for one subscription, or for
    all of the program's."""
    (made,) = run.of(2, "subscribe")
    made["client"] = 7
    for number, record in enumerate(run.of(2, "deliver")[:6]):
        changes = {"kind": "drop", "client": 7, "reason": "slow client"}
        if number < 4:
            del (record := dict(record))["subscription"]
        run.also(2, {**record, **changes}, hlc=record["hlc"] + 1)


def given_up(run: Run) -> None:
    (gone,) = run.never(
        2, lambda record: record["kind"] == "deliver" and record is run.of(2, "deliver")[4]
    )
    run.also(
        1,
        {name: gone[name] for name in ("v", "time", "run", "event")},
        kind="drop",
        peer=run.name(2),
        reason="held too long",
        hlc=gone["hlc"],
    )


def given_up_beside_losses(run: Run) -> None:
    """Thirty deliveries to node 2 are given up by node 1, and two to node 3 never arrive."""
    gone = {record["event"]: record for record in run.of(2, "deliver")[:30]}
    run.never(2, lambda record: record["kind"] == "deliver" and record["event"] in gone)
    for record in gone.values():
        fields = {name: record[name] for name in ("v", "time", "run", "event", "hlc")}
        run.also(1, fields, kind="drop", peer=run.name(2), reason="held too long")
    events = {record["event"] for record in run.of(3, "deliver")[8:10]}
    run.never(
        3, lambda record: record["kind"] in ("deliver", "arrive") and record.get("event") in events
    )


def publication_removed(run: Run) -> None:
    """The publish record and all deliveries of an event are absent, what hosts wrote is there."""
    event = run.of(0, "publish")[7]["event"]
    for node in run.records:
        run.cut(node, lambda r: r.get("event") == event and r["kind"] in ("publish", "deliver"))


def published_by_nobody(run: Run) -> None:
    """The same, and no node ever wrote them."""
    publication_removed(run)
    for node in run.records:
        run.renumber(node)


def suback(run: Run, after: int | None) -> None:
    """Subscriber 3 has its SUBACK after so many deliveries, or not at all; of those before it the
    overlay makes none."""
    (given,) = run.never(3, lambda record: record["kind"] == "suback")
    before = run.of(3, "deliver")[: EVENTS if after is None else after]
    run.never(3, lambda record: record["kind"] == "deliver" and record in before)
    if after is not None:
        run.also(3, given, hlc=before[-1]["hlc"])


def no_suback_at_all(run: Run) -> None:
    for node in (1, 2, 3):
        run.never(node, lambda record: record["kind"] in ("suback", "deliver"))


def subscription_removed(run: Run) -> None:
    run.cut(3, lambda record: "subscription" in record)


def subscription_by_nobody(run: Run) -> None:
    run.never(3, lambda record: record["kind"] in ("subscribe", "suback"))


def delivered_elsewhere(run: Run) -> None:
    (record,) = run.never(
        2, lambda record: record["kind"] == "deliver" and record is run.of(2, "deliver")[4]
    )
    run.also(3, record)


def delivered_too_early(run: Run) -> None:
    record = run.of(2, "deliver")[4]
    record["hlc"] -= 2 * SECOND
    run.renumber(2)


def of_a_publisher_that_nobody_met(run: Run) -> None:
    """An event reaches a program, and no record of any node names the one that published it."""
    record = run.of(2, "deliver")[4]
    run.also(2, record, hlc=record["hlc"] + 1, event="ffffffffffffffff.1.7")


def published_twice(run: Run) -> None:
    record = run.of(0, "publish")[4]
    run.also(0, record, hlc=record["hlc"] + 1, attributes='{"a":1}')


def killed(run: Run) -> None:
    """Node 3 is killed after the twentieth event, and its next process subscribes to nothing."""
    last = run.of(3, "deliver")[19]
    run.never(3, lambda record: record.get("hlc", 0) > last["hlc"])
    later = {"hlc": last["hlc"] + 20 * SECOND, "run": 2}
    first = run.of(3, "file")[0]
    run.records[3].append({**first, "run": 2})
    run.also(3, run.of(3, "start")[0], **later)
    run.also(3, run.of(0, "stop")[0], run=2, published=0, subscribed=0)


def cut_short(run: Run) -> None:
    """The second half of subscriber 3's file is absent."""
    last = run.of(3, "deliver")[EVENTS // 2]
    run.cut(3, lambda record: record.get("hlc", 0) > last["hlc"])


def copied_while_written(run: Run) -> None:
    """All files end between two events, that of node 3 one event earlier."""
    last = run.of(2, "deliver")[EVENTS - 3]["hlc"] + SECOND
    for node in run.records:
        end = last - 3 * SECOND if node == 3 else last
        run.cut(node, lambda record, end=end: record.get("hlc", 0) > end)


def broken_attributes(run: Run) -> None:
    run.of(0, "publish")[4]["attributes"] = '{"a":6,"numb'


def counted_as_lost(run: Run) -> None:
    run.cut(2, lambda record: record["kind"] == "deliver" and record is run.of(2, "deliver")[4])
    run.of(2, "stop")[0]["lost"] = 1


def absent_record(run: Run) -> None:
    run.cut(2, lambda record: record["kind"] == "arrive" and record is run.of(2, "arrive")[4])


def of_version_2(run: Run) -> None:
    """As nodes wrote it that recorded each match, also those that found nobody interested."""
    for record in run.of(1, "match"):
        for attribute in ("number", "b"):
            run.also(1, record, attribute=attribute, recipients=0, hlc=record["hlc"] - 1)
    for records in run.records.values():
        for record in records:
            record["v"] = 2


def broken_line(run: Run) -> None:
    record = run.of(2, "deliver")[4]
    record["as it is"] = json.dumps(record)[:90]


def absent_node(run: Run) -> None:
    del run.records[3]


def first_records_removed(run: Run) -> None:
    run.cut(2, lambda record: record.get("n", 9) < 3)


def copied_inside(run: Run, folder: Path) -> None:
    run.store(folder)
    run.store(folder, "backup of Monday")


def contradicted(run: Run, folder: Path) -> None:
    run.store(folder)
    other = Run({2: copy.deepcopy(run.records[2])})
    other.of(2, "deliver")[4]["hops"] = 9
    other.store(folder, "other")


def another_overlay(run: Run, folder: Path) -> None:
    """Nodes that these never met, under the same overlay's name."""
    run.store(folder)
    copy_of(run.records, run.records[0][0]["overlay"], 0xEEEE).store(folder, "other")


def altered(old: str, new: str) -> Callable[[Run], None]:
    """The tree of subscription 2 is another than that of its text, and all else fits the text."""

    def plant(run: Run) -> None:
        (made,) = run.of(2, "subscribe")
        assert old in made["tree"]
        made["tree"] = made["tree"].replace(old, new)

    return plant


def redacted(run: Run) -> None:
    """Every node has written its records with `trace.redact`."""
    for node, records in run.records.items():
        hidden = Redaction()
        run.records[node] = [hidden.apply(record["kind"], record) for record in records]
    assert '"number": ' not in str(run.records)


def redacted_and_twice(run: Run) -> None:
    """The same, and one event reached a program twice."""
    run.also(2, run.of(2, "deliver")[3])
    redacted(run)


def header(**changes: object) -> Callable[[Run], None]:
    """The header of node 2 says something else."""

    def plant(run: Run) -> None:
        run.of(2, "file")[0].update(changes)

    return plant


def losses_hidden_by_a_header(run: Run) -> None:
    lost(2, 5, 12)(run)
    header(sample=0.1)(run)


def fewer_than_the_header_says(run: Run) -> None:
    run.without(2, 0.35)
    header(sample=1.0)(run)


def of_another_name(run: Run) -> None:
    header(overlay=run.records[0][0]["overlay"] + " #other")(run)


def broken_header(run: Run) -> None:
    record = run.of(2, "file")[0]
    record["as it is"] = json.dumps(record)[:60]


def vanished(place: int) -> Callable[[Run], None]:
    """An event leaves no trace at all, and no node counts a record as lost."""

    def plant(run: Run) -> None:
        event = run.of(0, "publish")[place]["event"]
        for node in run.records:
            run.never(node, lambda record: record.get("event") == event)

    return plant


def subscription_vanished(run: Run) -> None:
    run.never(3, lambda record: "subscription" in record)


def unreadable(record: Record) -> None:
    record["as it is"] = json.dumps(record)[:90]


def suback_unreadable(run: Run) -> None:
    run.never(3, lambda record: record["kind"] == "deliver")
    unreadable(run.of(3, "suback")[0])


def unsubscribe_unreadable(run: Run) -> None:
    at = run.of(3, "deliver")[9]["hlc"]
    last = run.of(3, "deliver")[9]
    run.also(3, last, kind="unsubscribe", hlc=at + SECOND)
    run.never(3, lambda record: record["kind"] == "deliver" and record["hlc"] > at)
    unreadable(run.of(3, "unsubscribe")[0])


def said(**changes: object) -> Callable[[Run], None]:
    """A record of a delivery says something else than that of the publication."""

    def plant(run: Run) -> None:
        run.of(2, "deliver")[4].update(changes)

    return plant


def attributes_changed(run: Run) -> None:
    run.of(0, "publish")[4]["attributes"] = '{"a":7,"number":4}'


def without_digests(run: Run) -> None:
    """As older nodes write."""
    for records in run.records.values():
        for record in records:
            record.pop("digest", None)


def published_too_early(run: Run) -> None:
    """The time of a publication says that it was before every SUBACK, its number that it was not;
    and it never arrived."""
    lost(2, 5, 1)(run)
    run.of(0, "publish")[5]["hlc"] = run.of(0, "start")[0]["hlc"]


def program_lost_for_ever(run: Run) -> None:
    """One record says that nobody was there to read for all of the run, and 20 did not come."""
    lost(3, 5, 20)(run)
    last = run.of(3, "stop")[0]
    end = {"kind": "unsubscribe", "time": last["time"], "hlc": last["hlc"] - 1, "unread": 1e6}
    run.also(3, run.of(3, "suback")[0], **end)


def published_by_another(run: Run) -> None:
    (record,) = run.never(
        0, lambda record: record["kind"] == "publish" and record is run.of(0, "publish")[4]
    )
    run.also(1, record)


def sampled(said: float = 0.5, vanish: bool = False) -> Callable[[Run], None]:
    """From the eleventh event on the publisher traces half of its events, and its record has
    `said`; with `vanish` one of these leaves no trace either."""

    def plant(run: Run) -> None:
        events = [record["event"] for record in run.of(0, "publish")][10:]
        kept = [event for event in events if crc32(event.encode()) < 2**31]
        gone = {*events} - {*kept} | ({kept[3]} if vanish else set())
        for node in run.records:
            run.never(node, lambda record: record.get("event") in gone)
        record = run.of(0, "publish")[9]
        fields = {name: record[name] for name in ("v", "time", "run")}
        run.also(0, fields, kind="sampling", first=11, share=said, hlc=record["hlc"] + 1)

    return plant


BELOW_20 = '["cmp", "<", ["attr", "number"], ["lit", 20]]'


def withheld(kept: int = 20) -> Callable[[Run], None]:
    """A policy leaves subscriber 2 the first 20 events; `kept` are delivered."""

    def plant(run: Run) -> None:
        run.of(2, "subscribe")[0]["permitted"] = BELOW_20
        lost(2, kept, EVENTS)(run)

    return plant


def policy_changed(run: Run) -> None:
    """It does so from the tenth event on."""
    (made,) = run.of(2, "subscribe")
    made["permitted"] = made["tree"]
    at = run.of(2, "deliver")[9]
    change = {**made, "permitted": BELOW_20, "time": at["time"]}
    for name in ("selector", "tree", "name", "level", "client"):
        change.pop(name, None)
    run.also(2, change, kind="confined", hlc=at["hlc"])
    lost(2, 20, EVENTS)(run)


def refused_by_a_host(run: Run) -> None:
    record = run.of(0, "publish")[4]
    fields = {name: record[name] for name in ("v", "time", "run", "event", "hlc")}
    for node in (1, 2, 3):
        run.never(
            node,
            lambda each: each["kind"] in ("deliver", "arrive") and each["event"] == record["event"],
        )
    run.also(0, fields, kind="refused", reason="policy 3 does not permit it", hlc=record["hlc"] + 1)


HOSTILE = "{node} {0} ${env:HOME} 'quoted' \\\\ `back`"
"""A name that formats, substitutions and quoting of SQL could mistake for their own."""


def hostile_names(run: Run) -> None:
    """Ids and names of nodes as well, and different shares of events, by which nodes are listed."""
    text = json.dumps(run.records)
    for node in run.records:
        text = text.replace(run.name(node), "{" + run.name(node) + "}'${x}")
    run.records = {int(node): own for node, own in json.loads(text).items()}
    for node in run.records:
        run.of(node, "start")[0]["name"] = HOSTILE
    run.without(2, 0.5)


PLANTED: dict[str, Planted] = {
    "nothing": Planted(nothing),
    "a clock an hour ahead": Planted(ahead(3600.0)),
    "a clock an hour behind": Planted(ahead(-3600.0)),
    "a clock two seconds ahead": Planted(ahead(2.0)),
    "a clock that is set": Planted(clock_set),
    "losses under a clock an hour ahead": Planted(
        lost_with_a_clock_ahead, "not exact", {"missing": 4}
    ),
    "a loss": Planted(lost(2, 5, 1), "not exact", {"missing": 1}),
    "a double": Planted(twice, "not exact", {"duplicates": 1}),
    "a stranger": Planted(stranger, "not exact", {"spurious": 3}),
    "delivered after the end": Planted(after_the_end, "not exact", {"spurious": EVENTS - 10}),
    "a slow program": Planted(slow_program, "not exact", {"discarded": 6}),
    "given up by a host": Planted(given_up, "not exact", {"dropped": 1}),
    "many given up beside two losses": Planted(
        given_up_beside_losses, "not exact", {"missing": 2, "dropped": 30}
    ),
    "a publication and its deliveries removed": Planted(
        publication_removed, "not judged", unjudged=1 + 3
    ),
    "an event that nobody published": Planted(
        published_by_nobody, "not exact", {"unpublished": 1}, unjudged=3
    ),
    "a late SUBACK": Planted(lambda run: suback(run, 30), "not judged", unjudged=27),
    "no SUBACK": Planted(lambda run: suback(run, None), "not judged", unjudged=EVENTS - 3),
    "no SUBACK at all": Planted(no_suback_at_all, "not judged", unjudged=3 * (EVENTS - 3)),
    "a subscription without any record": Planted(
        subscription_removed, "not judged", unjudged=EVENTS
    ),
    "a subscription that nobody made": Planted(
        subscription_by_nobody, "not exact", {"unknown": EVENTS}, unjudged=EVENTS
    ),
    "delivered at another node": Planted(delivered_elsewhere, "not exact", {"spurious": 1}),
    "delivered before it was published": Planted(delivered_too_early, "not exact", {"spurious": 1}),
    "delivered of a publisher that nobody met": Planted(
        of_a_publisher_that_nobody_met, "not exact", {"unknown": 1}
    ),
    "the same while a record is absent": Planted(
        lambda run: (of_a_publisher_that_nobody_met(run), absent_record(run)),
        "not judged",
        unjudged=1,
    ),
    "one identity published twice": Planted(published_twice, "not exact", {"republished": 1}),
    "killed and started again": Planted(killed),
    "different sampling": Planted(lambda run: run.without(2, 0.5)),
    "a file cut short": Planted(cut_short, "not judged", unjudged=EVENTS // 2 - 1),
    "copied while it was written": Planted(copied_while_written, unjudged=1),
    "broken JSON in attributes": Planted(broken_attributes, "not judged", unjudged=4),
    "a record counted as lost": Planted(counted_as_lost, unjudged=1),
    "an absent record": Planted(absent_record, "not judged"),
    "records of version 2": Planted(of_version_2),
    "a broken line": Planted(broken_line, unjudged=1),
    "an absent node": Planted(absent_node, "not judged", unjudged=EVENTS),
    "the first records removed": Planted(first_records_removed, "not judged"),
    "a tree with another constant": Planted(
        altered("5", "5.5"), "not exact", {"altered": 1}, unjudged=EVENTS
    ),
    "a tree with another operator": Planted(
        altered('">"', '">="'), "not exact", {"altered": 1}, unjudged=EVENTS
    ),
    "a tree with another attribute": Planted(
        altered('"a"', '"number"'), "not exact", {"altered": 1}, unjudged=EVENTS
    ),
    "values redacted": Planted(redacted, "not judged", unjudged=3 * EVENTS),
    "values redacted, one event twice": Planted(
        redacted_and_twice, "not exact", {"duplicates": 1}, unjudged=3 * EVENTS
    ),
    "a copy inside of the folder": Planted(nothing, stored=copied_inside),
    "a copy that differs": Planted(
        nothing, "not exact", {"contradictions": 1}, stored=contradicted
    ),
    "no header": Planted(
        lambda run: run.cut(2, lambda record: record["kind"] == "file"), "not judged"
    ),
    "an unreadable header": Planted(broken_header, "not judged"),
    "a header of another overlay": Planted(of_another_name, "not judged", unjudged=EVENTS),
    "losses that a header hides": Planted(losses_hidden_by_a_header, "not exact", {"missing": 12}),
    "fewer events than the header says": Planted(fewer_than_the_header_says, "not judged"),
    "an event without any record": Planted(vanished(7), "not judged", unjudged=3),
    "the last event without any record": Planted(vanished(EVENTS - 1), "not judged", unjudged=3),
    "a subscription that vanished": Planted(subscription_vanished, "not judged", unjudged=EVENTS),
    "a share of the events": Planted(sampled()),
    "a share and an event without any record": Planted(
        sampled(vanish=True), "not judged", unjudged=3
    ),
    "an unreadable publication": Planted(
        lambda run: unreadable(run.of(0, "publish")[4]), "not judged", unjudged=3 + 3
    ),
    "an unreadable SUBACK": Planted(suback_unreadable, "not judged", unjudged=EVENTS),
    "an unreadable end of a subscription": Planted(
        unsubscribe_unreadable, "not judged", unjudged=EVENTS - 10
    ),
    "delivered with another id": Planted(said(id="other"), "not exact", {"corrupted": 1}),
    "delivered with another content": Planted(said(digest=5), "not exact", {"corrupted": 1}),
    "attributes that are not those published": Planted(
        attributes_changed, "not judged", unjudged=4
    ),
    "a delivery without a digest": Planted(said(digest=None), unjudged=1),
    "no digests": Planted(without_digests),
    "a time that contradicts its number": Planted(published_too_early, "not judged"),
    "a program that one record calls lost": Planted(
        program_lost_for_ever, "not judged", unjudged=20
    ),
    "published by another process": Planted(published_by_another, "not judged"),
    "a policy that withholds": Planted(withheld(), withheld=20),
    "delivered against the policy": Planted(
        withheld(21), "not exact", {"spurious": 1}, withheld=19
    ),
    "another policy": Planted(policy_changed, withheld=20),
    "refused by a host": Planted(refused_by_a_host, withheld=3),
    HOSTILE: Planted(hostile_names),
    "another overlay of the same name": Planted(nothing, "not judged", stored=another_overlay),
}
"""Each fault by its name."""


def plant(folder: Path) -> None:
    """Write a copy of the good run for each fault, with the fault, below `folder`/traces."""
    good = written(folder / "good")
    for number, (name, fault) in enumerate(PLANTED.items(), 1):
        run = copy_of(good, name, number)
        fault.plant(run)
        fault.stored(run, folder / "traces" / f"{number:02}")


def judged_right(name: str, found: AnalysisSummary) -> None:
    """Assert that the fault was judged as it has to be."""
    fault = PLANTED[name]
    rows = [row for row in found.overlays if row["name"].partition(" #")[0] == name]
    assert {row["result"] for row in rows} == {fault.result}, rows
    assert [row["faults"] for row in rows] == [fault.faults] * len(rows)
    assert sum(row["unjudged"] for row in rows) == fault.unjudged, rows
    assert sum(row["withheld"] for row in rows) == fault.withheld, rows
