"""`canopy sub --diff OLD NEW`: the events that a changed selector gains and loses."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

from canopy.cli.constants import DIFF_EVENTS, DIFF_SHOWN
from canopy.cli.output import console, label, print_json, printable
from overlay.phrases import counted

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from rich.console import Console

    from canopy.client.client import Client
    from canopy.client.comparison import Difference, SelectorComparison
    from overlay.client import Event


def show_difference(client: Client, old: str, new: str, as_json: bool, timeout: float) -> None:
    """Compare two selectors on the events that the node remembers, and by the intervals of their
    attributes. Raises SelectorError."""
    from canopy.client.comparison import compare, differences
    from canopy.client.hints import never_true
    from matching import compile_selector
    from overlay.client import Events, GetEvents

    before, after = compile_selector(old), compile_selector(new)
    for name, predicate in (("OLD", before), ("NEW", after)):
        for remark in never_true(predicate):
            click.echo(f"warning: {name}: {remark}", err=True)
    events = client.ask(GetEvents(0, DIFF_EVENTS), Events, timeout).events
    on_events, by_attribute = compare(before, after, events), differences(before, after)
    if as_json:
        print_json(as_object(on_events, by_attribute))
    else:
        _show(console(), on_events, by_attribute, (*before.attributes, *after.attributes))


def as_object(found: SelectorComparison, by_attribute: Mapping[str, Difference]) -> dict[str, Any]:
    """Return the object that `--json` prints: numbers of events, the identities of the events on
    which the selectors differ, and the differences of values by attribute."""
    return {
        "both": len(found.both),
        "gained": len(found.gained),
        "lost": len(found.lost),
        "neither": len(found.neither),
        "gained_events": [event.identity for event in found.gained],
        "lost_events": [event.identity for event in found.lost],
        "attributes": {
            name: {"gained": list(each.gained), "lost": list(each.lost)}
            for name, each in by_attribute.items()
        },
    }


def _show(
    out: Console,
    found: SelectorComparison,
    by_attribute: Mapping[str, Difference],
    attributes: Sequence[str],
) -> None:
    total = sum(map(len, (found.both, found.gained, found.lost, found.neither)))
    if total:
        out.print(
            f"Of the last {counted(total, 'event')} that this node published or got, OLD matches "
            f"{len(found.both) + len(found.lost):,}, NEW {len(found.both) + len(found.gained):,}:",
            soft_wrap=True,
        )
        out.print(f"  [green]+ {len(found.gained):,} gained[/] (only NEW matches)")
        _examples(out, found.gained, attributes)
        out.print(f"  [red]- {len(found.lost):,} lost[/] (only OLD matches)")
        _examples(out, found.lost, attributes)
        out.print(f"  = {len(found.both):,} match both, {len(found.neither):,} neither")
    else:
        out.print("This node remembers no events: it has published and got none.")
    out.print()
    if not by_attribute:
        out.print(
            "By single attributes both admit the same values; they may differ in patterns, or in "
            "how their tests belong together.",
            soft_wrap=True,
        )
        return
    out.print("Of any event, by the values of single attributes:")
    for name, each in by_attribute.items():
        _values(out, f"[green]+[/] only NEW can match if [bold]{label(name)}[/]", each.gained)
        _values(out, f"[red]-[/] only OLD can match if [bold]{label(name)}[/]", each.lost)


def _values(out: Console, what: str, values: Sequence[str]) -> None:
    if values:
        shown = " or ".join(map(label, values[:DIFF_SHOWN]))
        more = f" or one of {len(values) - DIFF_SHOWN} more" if len(values) > DIFF_SHOWN else ""
        out.print(f"  {what} is {shown}{more}", soft_wrap=True)


def _examples(out: Console, events: Sequence[Event], attributes: Sequence[str]) -> None:
    for event in events[:DIFF_SHOWN]:
        named = dict.fromkeys(name for name in attributes if name in event.attributes)
        values = " ".join(f"{name}={printable(event.attributes[name])}" for name in named)
        id_ = event.attributes.get("id")
        shown = event.identity if id_ is None else printable(id_)
        out.print(f"      {label(shown)}  {label(values)}", soft_wrap=True)
    if len(events) > DIFF_SHOWN:
        out.print(f"      … {len(events) - DIFF_SHOWN:,} more")
