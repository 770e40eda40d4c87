"""The whole analysis on made-up runs whose answers are known: verdicts, load, walks, the report."""

from __future__ import annotations

import csv
import json
import re
from contextlib import nullcontext
from dataclasses import replace
from pathlib import Path
from statistics import fmean, pstdev, pvariance
from typing import Any

import pytest

from canopy.cli.main import main
from canopy.traces.analysis import STAGES, AnalysisError, AnalysisSummary, analyze, read
from canopy.traces.analysis.report.wording import duration, number
from tests.support.traces.runs import (
    ABOVE_5,
    CORRUPT_LINES,
    EVIL,
    START,
    Analysed,
    Overlay,
    analysed,
    busy_run,
    verdict,
)

pytestmark = pytest.mark.spark


@pytest.fixture(scope="module")
def right(spark: Any, tmp_path_factory: pytest.TempPathFactory) -> Analysed:
    """A run in which everything goes right."""
    folder = tmp_path_factory.mktemp("right")
    return analysed(spark, busy_run(folder / "traces", 4, 60), folder / "report")


def test_the_jobs_of_a_small_run_are_one_stage_each(spark: Any, right: Analysed) -> None:
    """A stage costs the same for nothing as for much. Only the verdict's joins, one after another,
    are shuffled."""
    assert right.summary.exact
    assert sum(row["matches"] for row in right.summary.load) == 60, "also those in vain"
    tracker = spark.sparkContext.statusTracker()
    stages = [len(tracker.getJobInfo(job).stageIds) for job in right.jobs]
    assert len(stages) >= 10
    assert sum(count > 1 for count in stages) <= 1


def lost_program(o: Overlay, notes: dict[str, str]) -> None:
    """A subscription whose program is lost, and whose session is not resumed."""
    away = notes["away"] = o.subscribe(3, ["cmp", ">", ["attr", "p"], ["lit", 5]], "away", "p > 5")
    o.wait(3)  # its program is lost one second after this event
    o.deliver(o.publish(1, {"p": 8}), away, 1.0)
    o.wait(5)
    kept = notes["kept"] = o.publish(1, {"p": 9})  # delivered into a session that is not resumed
    o.deliver(kept, away, 1.0)
    notes["nobody"] = o.publish(1, {"p": 10})  # not even that
    o.wait(10)
    o.write(o.names[3], "unsubscribe", subscription=away, unread=13.0)
    o.wait(5)
    o.deliver(o.publish(1, {"p": 11}), away, 1.0)
    notes["past"] = next(e for e, attributes in o.events.items() if attributes == {"p": 11})


def faulty_run(folder: Path) -> tuple[Overlay, dict[str, str]]:
    """One of every fault, with the identities of the events and subscriptions concerned."""
    o = Overlay(folder, 4)
    notes: dict[str, str] = {}
    hot = notes["hot"] = o.subscribe(
        1, ["or", ABOVE_5, ["attr", EVIL]], EVIL, 'a > 5 OR "' + EVIL.replace('"', '""') + '"'
    )
    late = notes["late"] = o.subscribe(2, ABOVE_5, "late", "a > 5", ack=False)
    never = notes["never"] = o.subscribe(2, ABOVE_5, "never", "a > 5", ack=False)
    gone = notes["gone"] = o.subscribe(3, ABOVE_5, "gone", "a > 5")
    bad = notes["bad"] = o.subscribe(3, ["frobnicate", 1], "bad", "a ~ 5")
    o.wait(1)

    early = notes["early"] = o.publish(0, {"a": 9, "note": EVIL})  # before the suback of `late`
    o.route(early, 1, "a", [1, 3])
    for identity in (hot, late, gone):
        o.deliver(early, identity, 4.0)
    o.suback(late)

    fine = o.publish(0, {"a": 7})
    for identity in (hot, late, gone, never, bad):
        o.deliver(fine, identity, 5.0)
    o.deliver(fine, hot, 6.0)  # a duplicate
    o.deliver(fine, hot, 7.0)  # and another

    spurious = notes["spurious"] = o.publish(0, {"a": "9"})  # a string: the verdict is unknown
    o.deliver(spurious, hot, 5.0)

    lost = notes["lost"] = o.publish(0, {"a": 6})
    o.route(lost, 3, "a", [1])
    o.deliver(lost, late, 1.0)
    o.deliver(lost, gone, 900.0)

    silent = notes["silent"] = o.publish(0, {"a": 6})  # as `lost`, but no record says that it is
    o.route(silent, 3, "a", [1])
    o.deliver(silent, late, 1.0)
    o.deliver(silent, gone, 1.0)

    o.wait(2)
    going = notes["going"] = o.subscribe(3, ABOVE_5, "going", "a > 5")
    ending = notes["ending"] = o.publish(1, {"a": 8})  # half a second before two go
    o.deliver(ending, going, 1.0)
    o.deliver(ending, hot, 1.0)
    o.deliver(ending, late, 1.0)
    o.wait(0.5)
    o.unsubscribe(gone)
    o.unsubscribe(going)
    o.wait(5)
    over = notes["over"] = o.publish(1, {"a": 8})
    for identity in (hot, late, gone):
        o.deliver(over, identity, 2.0)
    o.deliver("nobody.1.1", hot, 2.0)  # an event that no trace knows
    o.write(o.names[0], "drop", event=lost, peer=o.names[1], reason="queue full", size=10)
    o.write(o.names[0], "refused", reason="NaN is no value")
    o.write(o.names[0], "walk_start", walk="vain", attribute="b", hops=10)
    o.write(o.names[0], "walk_miss", walk="vain", attribute="b", hop=10)
    o.write(o.names[0], "absent", attribute="b", hops=10)
    for version, (size, reason) in enumerate(((1, "created"), (3, "busy"), (2, "idle")), 1):
        o.write(
            o.names[1], "map", attribute="a", epoch=1, version=version, size=size, reason=reason
        )
    o.walk(0, "a", 3, hit=True, blocked=True)
    o.walk(0, "a", 2, hit=False)
    o.walk(0, "a", 0, hit=True)  # in the publisher's own table
    lost_program(o, notes)
    o.stop(data=100, kill=1)
    return o, notes


@pytest.fixture(scope="module")
def faulty(spark: Any, tmp_path_factory: pytest.TempPathFactory) -> Analysed:
    folder = tmp_path_factory.mktemp("faulty")
    overlay, notes = faulty_run(folder / "traces")
    foreign = folder / "traces" / "date=2026-09-21" / "node=x" / "foreign.jsonl"
    foreign.parent.mkdir(parents=True)
    foreign.write_bytes(b"\n\n  \n" + b"\n".join(line for line, _ in CORRUPT_LINES))
    # A record of a newer node, with a field more, is still a record.
    newer = folder / "traces" / "newer.jsonl"
    newer.write_text(
        f'{{"v":2,"time":{START},"hlc":{START:.0f}000000000,"node":"new","run":1,"n":1,"kind":"ready","mood":"fine"}}\n'
    )
    (folder / "traces" / "notes.txt").write_text("no traces here\n")
    return analysed(spark, overlay, folder / "report", notes)


def test_a_right_run_is_exact(right: Analysed) -> None:
    overlay, summary = right.overlay, right.summary
    expected = sum(
        verdict(subscription.tree, attributes) is True
        for attributes in overlay.events.values()
        for subscription in overlay.subscriptions
    )
    assert summary.exact
    assert summary.expected == summary.delivered == expected > 50
    assert summary.missing == summary.duplicates == summary.spurious == summary.early == 0
    assert (summary.nodes, summary.published, summary.subscriptions) == (4, 60, 10)
    assert summary.corrupt_lines == 0


def test_the_cost_is_the_papers(right: Analysed) -> None:
    summary = right.summary
    assert summary.messages == 4 * 30
    assert summary.other_messages == 4 * 50
    assert summary.messages_per_delivery == pytest.approx(120 / summary.delivered)
    assert summary.effective_distribution_cost == pytest.approx(120)


def test_every_stage_is_announced_once(right: Analysed) -> None:
    assert [stage for stage, _, _ in right.stages] == [*STAGES, "done"]
    assert [done for _, done, _ in right.stages] == list(range(len(STAGES) + 1))


def test_the_folder_has_what_the_readme_says(right: Analysed, spark: Any) -> None:
    assert sorted(path.name for path in right.out.iterdir()) == [
        "report.html",
        "summary.json",
        "tables",
    ]
    stored = json.loads((right.out / "summary.json").read_text())
    assert stored["format"] == "canopy-report"
    assert stored["exact"] is True
    assert stored["latency_ms"].keys() == {
        *("p50", "p90", "p99", "max"),
        *("mean", "variance", "deviation"),
    }
    assert len(stored["load"]) == 4
    assert Path(stored["report"]).is_file()
    assert len(right.table(spark, "publications")) == 60
    assert right.table(spark, "corrupt") == []


def test_the_tables_are_read_as_the_reference_says(
    faulty: Analysed,
    spark: Any,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    page = (Path(__file__).parents[3] / "docs/reference/formats.md").read_text()
    (example,) = re.findall(r"```python\n(.*?spark_session.*?)```", page, re.DOTALL)
    monkeypatch.setattr("canopy.traces.analysis.spark_session", lambda: nullcontext(spark))
    assert '"report/' in example
    exec(example.replace('"report/', f'"{faulty.out}/'), {})  # the JVM runs in another folder
    rows = [line for line in capsys.readouterr().out.splitlines() if line.startswith("|")]
    assert len(rows) == 1 + faulty.summary.missing


def test_faults_are_found_and_distinguished(faulty: Analysed, spark: Any) -> None:
    notes, summary = faulty.notes, faulty.summary
    verdicts = {
        (row["event"], row["subscription"]): row["verdict"]
        for row in faulty.table(spark, "deliveries")
        if row["verdict"] != "delivered"
    }
    fine = next(e for e, attributes in faulty.overlay.events.items() if attributes == {"a": 7})
    assert verdicts == {
        (notes["early"], notes["late"]): "early",
        (fine, notes["never"]): "early",
        (fine, notes["bad"]): "unknown",
        ("nobody.1.1", notes["hot"]): "unjudged",  # of a node without any record
        (notes["spurious"], notes["hot"]): "spurious",
        (notes["over"], notes["gone"]): "spurious",
        (notes["lost"], notes["hot"]): "dropped",
        (notes["silent"], notes["hot"]): "missing",
        (notes["ending"], notes["going"]): "ending",
        (notes["kept"], notes["away"]): "ending",
        # while its program was lost, by the word of one record
        (notes["nobody"], notes["away"]): "unjudged",
        (notes["past"], notes["away"]): "spurious",
    }
    assert not summary.exact
    # hot: 6 of early, fine, lost, silent, ending, over; late: 5 of these; gone: the first four.
    # away: one.
    assert (summary.expected, summary.delivered) == (16, 14)
    assert (summary.missing, summary.dropped) == (1, 1)
    assert (summary.duplicates, summary.spurious, summary.early) == (2, 3, 2)
    assert (summary.unknown, summary.ending) == (1, 2)
    assert summary.unjudged == 2
    assert (summary.subscriptions, summary.unreadable_subscriptions) == (7, 1)
    assert (summary.refused, summary.drops) == (1, 1)


def test_percentiles_are_exact(faulty: Analysed) -> None:
    assert faulty.summary.latency_ms["max"] == 900.0
    assert faulty.summary.latency_ms["p50"] == pytest.approx(3.0, abs=1.0)


def test_lines_that_are_no_records_are_kept_apart_with_a_reason(
    faulty: Analysed, spark: Any
) -> None:
    found = {row["line"]: row for row in faulty.table(spark, "corrupt")}
    for line, problem in CORRUPT_LINES:
        row = found.get(line.decode(errors="replace")) or found.get(line.decode("latin-1"))
        assert row is not None, line
        assert row["problem"].startswith(problem), (line, row["problem"])
        assert row["file"].endswith("/foreign.jsonl")
    assert faulty.summary.corrupt_lines == len(CORRUPT_LINES) == len(found)
    assert faulty.summary.nodes == 5  # the four and the newer one; none from a corrupt line


def test_messages_of_a_killed_node_are_counted_from_its_records(
    faulty: Analysed, spark: Any
) -> None:
    load = {row["node"]: row for row in faulty.table(spark, "load")}
    killed = load[faulty.overlay.names[1]]
    steps = [
        json.loads(line)["kind"]
        for path in faulty.overlay.folder.rglob(f"node={killed['node']}/*.jsonl")
        for line in path.read_text().split("\n")
        if line
    ]
    counted = sum(kind in ("walk_hop", "visit", "forward") for kind in steps)
    assert killed["counted"]
    assert killed["data_messages"] == counted > 0
    assert load[faulty.overlay.names[2]]["data_messages"] == 100
    assert faulty.summary.messages == 300 + counted


def test_walks_are_counted_by_walk_and_by_ring(faulty: Analysed) -> None:
    summary = faulty.summary
    assert (summary.walks, summary.walk_hits, summary.ring_hits, summary.absent) == (3, 1, 1, 1)
    assert summary.walk_hit_rate == pytest.approx(1 / 3)
    assert summary.table_hits == 1, "no walk was needed"
    assert summary.walks_findable == 2
    assert (summary.blocked, summary.recovered, summary.walk_messages) == (1, 1, 6)
    assert summary.walk_hops == {"mean": 3.0, "p50": 3.0, "p99": 3.0, "max": 3.0}
    assert summary.tree_hops["max"] == 1.0


def test_the_report_says_what_the_walks_did_and_draws_one(faulty: Analysed) -> None:
    page = (faulty.out / "report.html").read_text()
    assert "1 of the 2 for attributes that have a tree hit (50 %), after 3 hops" in page
    assert "1 search needed no walk: the tree stood in" in page
    assert "walked for the tree of a, 10 steps at most. Blocked at" in page
    assert "each served by a node. The only tree had 3 at most." in page


def test_the_report_says_what_went_wrong_and_how_far_it_got(faulty: Analysed) -> None:
    page = (faulty.out / "report.html").read_text()
    assert "1 delivery missing" in page
    assert "14 of 16 expected deliveries were made." in page
    assert "arrived at its node and was not delivered" in page
    assert "the selector is not true for this event" in page
    assert "queue full" in page
    assert "NaN is no value" in page
    assert "900 ms" in page


def test_the_report_has_the_parts_of_the_latencies(faulty: Analysed, spark: Any) -> None:
    page = (faulty.out / "report.html").read_text()
    assert "2 events that were published before it were delivered all the same" in page
    assert "1 subscription had none in the records" in page
    (hot,) = (row for row in faulty.table(spark, "subscriptions") if row["name"] == EVIL)
    assert hot["p50_ms"] <= hot["p90_ms"] <= hot["p99_ms"] <= hot["max_ms"]
    attributes = {row["attribute"]: row for row in faulty.table(spark, "attributes")}
    assert attributes["a"]["visits"] == 3
    assert attributes["a"]["virtual_nodes"] == 3
    assert {row["node"] for row in faulty.table(spark, "hosts")} == set(faulty.overlay.names[1::2])
    for row in faulty.table(spark, "links"):
        assert 0.3 <= row["p50_ms"] <= 2.0, "as `route` draws it"


def test_what_can_be_downloaded_is_there_and_whole(faulty: Analysed, spark: Any) -> None:
    page = (faulty.out / "report.html").read_text()
    links = re.findall(r'<a href="(tables/[^"]+)"', page)
    assert {"tables/deliveries.csv", "tables/attributes.csv"} <= set(links)
    assert all((faulty.out / link).exists() for link in links)
    with (faulty.out / "tables" / "subscriptions.csv").open(newline="") as file:
        found = {row["subscription"]: row["selector"] for row in csv.DictReader(file)}
    stored = faulty.table(spark, "subscriptions")
    assert found == {row["subscription"]: row["selector"] or "" for row in stored}


def test_what_users_wrote_is_escaped(faulty: Analysed) -> None:
    page = (faulty.out / "report.html").read_text()
    assert "alert(" in page
    assert "<script" not in page
    assert "hello <b>" not in page
    assert "hello &lt;b&gt;" in page


def test_a_run_without_incidents_has_no_section_of_them(right: Analysed) -> None:
    assert "What happened" not in (right.out / "report.html").read_text()


def test_the_command_says_whether_the_run_was_exact_with_its_exit_code(
    right: Analysed,
    faulty: Analysed,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.delenv("COLUMNS", raising=False)  # a pipe has lines of any length

    def run(summary: AnalysisSummary, *options: str) -> tuple[int, str]:
        monkeypatch.setattr("canopy.traces.analysis.analyze_places", lambda *_, **__: summary)
        code = main(["trace", "analyze", str(tmp_path), "--out", str(tmp_path / "out"), *options])
        return code, capsys.readouterr().out

    code, said = run(right.summary)
    assert (code, "; exact: " in said) == (0, True)
    assert "not exact" not in said
    code, said = run(faulty.summary)
    assert code == 9, "and not that of a failure"
    assert f"not exact: {faulty.summary.expected} expected deliveries, " in said
    assert f"{faulty.summary.missing} missing, " in said
    rows = [re.split(r" {2,}", line.strip())[:4] for line in said.splitlines()]
    assert ["missing", "1", "node-1", "arrived at its node and was not delivered"] in rows
    assert ["repeated", "2", "node-1", "delivered again"] in rows
    assert ["dropped", "1", "node-1", "given up by node-0: queue full"] in rows
    assert "- 17 lines of the traces could not be read and were left out." in said
    many = [row | {"groups": 9} for row in faulty.summary.wrong if row["kind"] == "missing"] * 5
    _, said = run(replace(faulty.summary, wrong=many))
    assert said.count("arrived at its node and was not delivered") == 3
    assert "6 more groups: see the report" in said
    code, said = run(replace(right.summary, result="not judged", reasons=["nothing is proved"]))
    assert code == 5
    assert "not judged: nothing is proved" in said
    code, said = run(faulty.summary, "--json")
    assert code == 9
    assert json.loads(said)["exact"] is False


def test_the_report_needs_no_network(right: Analysed) -> None:
    page = (right.out / "report.html").read_text()
    assert "Everything arrived" in page
    for lead in ("http:", "https:", "src=", "@import"):
        assert lead not in page
    assert not re.search(r"url\((?!#)", page), "only parts of the page itself"
    assert "prefers-color-scheme: dark" in page


def test_runs_of_a_node_and_samples(spark: Any, tmp_path: Path) -> None:
    """A node is killed, comes back and stops; the traces hold a part of the events."""
    overlay = Overlay(tmp_path / "traces", 2, sample=0.5)
    identity = overlay.subscribe(1, ABOVE_5, "hot", "a > 5")
    for _ in range(100):
        event = overlay.publish(0, {"a": 6})
        overlay.deliver(event, identity, 1.0)
    overlay.walk(0, "a", 4, hit=True)  # two of its hops go out from node 0, two from node 1
    overlay.wait(1)
    overlay.restart(0)
    overlay.write(overlay.names[1], "stop", data_messages=40)
    overlay.wait(5)
    for _ in range(20):  # the subscription ended with its node
        overlay.publish(0, {"a": 6})
    overlay.stop(data=40, kill=1)
    summary = analysed(spark, overlay, tmp_path / "report").summary
    assert summary.sample == 0.5
    assert 30 < summary.expected == summary.delivered < 70
    assert summary.messages == 2 + 40 + 40
    assert summary.messages_per_delivery == pytest.approx(82 * 0.5 / summary.delivered)
    assert {row["name"]: row["runs"] for row in summary.load} == {"node-0": 2, "node-1": 1}


def test_a_job_that_fails_is_one_line_and_no_stack_and_the_next_one_runs(
    spark: Any,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capfd: pytest.CaptureFixture[str],
) -> None:
    overlay = Overlay(tmp_path / "traces", 1)
    overlay.stop(data=0, other=0)
    monkeypatch.setattr(read, "store_records", lambda *_: spark.sql("SELECT nonsense"))
    with pytest.raises(AnalysisError, match=r"the Spark job failed: .*nonsense") as caught:
        analyze(tmp_path / "traces", tmp_path / "out", session=spark)
    assert "\n" not in str(caught.value)
    assert capfd.readouterr() == ("", "")
    monkeypatch.undo()
    # Nothing was published, and nothing subscribed to.
    summary = analysed(spark, overlay, tmp_path / "report").summary
    assert summary.nodes == 1
    assert summary.result == "not judged"
    assert (summary.expected, summary.published, summary.walks) == (0, 0, 0)
    assert set(summary.latency_ms.values()) == {None}
    assert summary.load_spread["deliveries"] == {"mean": 0.0, "variance": 0.0, "deviation": 0.0}
    assert summary.effective_distribution_cost is None
    assert "No delivery was expected" in (tmp_path / "report" / "report.html").read_text()


def test_mean_variance_and_deviation_are_of_what_the_tables_have(
    faulty: Analysed, spark: Any
) -> None:
    found = [row["latency_ms"] for row in faulty.table(spark, "deliveries")]
    times = [ms for ms in found if ms is not None]
    latency, spread = faulty.summary.latency_ms, faulty.summary.load_spread
    assert latency["mean"] == pytest.approx(fmean(times))
    assert latency["variance"] == pytest.approx(pvariance(times))
    assert latency["deviation"] == pytest.approx(pstdev(times))
    assert spread.keys() == {"data_messages", "deliveries", "matches"}
    for kind, numbers in spread.items():
        load = [row[kind] for row in faulty.table(spark, "load")]
        assert numbers["mean"] == pytest.approx(fmean(load))
        assert numbers["variance"] == pytest.approx(pvariance(load))
        assert numbers["deviation"] == pytest.approx(pstdev(load))
    assert len(set(times)) > 1
    assert spread["deliveries"]["deviation"]
    page = (faulty.out / "report.html").read_text()
    assert f"deviation {duration(latency['deviation'])}" in page
    assert f"deviation {number(spread['deliveries']['deviation'])}" in page
