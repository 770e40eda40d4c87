"""What an experiment is: a plan, what runs its trials, tables and a picture of what they found.

Tables and pictures are made from the rows of a result. A row is found by the names of nested lists
(`each`), and has the values of all that is around it; keys and columns are as in
`bench.lab.tables`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, BinaryIO, Generic, Literal, NamedTuple, TypeVar

import msgspec

from bench.experiments.running import Progress
from bench.experiments.svg import svg
from bench.lab.tables import Column, Row, Spec, elements, value
from canopy.cli import output
from overlay.links.events import Codec

if TYPE_CHECKING:
    from rich.table import Table as RichTable

Plan = TypeVar("Plan", bound=msgspec.Struct)
Found = TypeVar("Found")

Each = tuple[str, ...]
"""Names of lists, each in the rows of the former one; (): the result is the only row."""

COLOURS = ("#1f6f8b", "#c0392b", "#7f8c8d", "#b9770e", "#4b7f52", "#8e44ad")
MARKERS = ("o", "s", "^", "D", "x", "v")


class Table(NamedTuple):
    """A table of a result's rows."""

    columns: str
    """As in the comments of docs/lab: ``key format: header | …``."""
    each: Each = ()
    title: str = ""
    """With values of the first row: ``attack: {parameters.attack}``."""
    by: str = ""
    """A table for each value of this key."""
    transposed: bool = False
    """A line for each column of `columns`."""
    across: str = ""
    """Of two columns, the second stands under each value of this key, beside the first."""


class Panel(NamedTuple):
    """A chart of a result's rows: `y` over `x`, a series for each value of `by`."""

    x: str
    y: str
    by: str
    x_label: str
    y_label: str
    each: Each
    where: Mapping[str, Any] = {}
    kind: Literal["lines", "bars"] = "lines"
    x_base: int = 0
    """Of a logarithmic axis; 0: it is linear."""
    y_log: bool = False
    most: str = ""
    """The upper end of a bar above each point."""
    dotted: str = ""
    """A second value of each row, dotted in the colour of its series."""
    span: tuple[float, float, str] | None = None
    """An area between two values of y, and what it is."""


class Picture(NamedTuple):
    """Charts side by side, in rows."""

    panels: tuple[tuple[Panel, ...], ...]
    title: str
    """With values of the result."""
    size: tuple[float, float]
    """Width and height in inches."""


def builtins(found: Any) -> Row:
    """A result as dictionaries, lists and numbers, as its JSON has it; a list as ``rows``."""
    facts = msgspec.json.decode(msgspec.json.encode(found))
    return facts if isinstance(facts, dict) else {"rows": facts}


def always(found: Any) -> bool:
    """Every result is good."""
    return True


@dataclass(frozen=True)
class Experiment(Generic[Plan, Found]):
    """Something that can be run: `python -m bench.experiments NAME`."""

    name: str
    title: str
    about: str
    """What it does and shows, for ``--help``."""
    plan: Plan
    """The parameters, with the values that they have if nothing else is asked for."""
    run: Callable[[Plan, Codec, Progress], Found]
    """Run all trials. Raises PlanError for parameters that don't go together."""
    tables: tuple[Table, ...]
    picture: Picture | None = None
    is_good: Callable[[Found], bool] = always
    """Whether what was found is as it has to be: exit code 0, else 1."""
    facts: Callable[[Found], Row] = builtins
    """What tables and picture show."""


def rows(facts: Row, each: Each) -> list[Row]:
    """The rows of a result that `each` names."""
    found = [facts]
    for name in each:
        found = [inner for row in found for inner in elements(row, name)]
    return found


def written(template: str, row: Row) -> str:
    """A text with the values of a row in the place of ``{key:format}``."""
    return Column(template, "", "").text(row) if "{" in template else template


def shown(table: Table, facts: Row) -> Iterator[RichTable]:
    """The table, or one for each value of `by`, for a terminal."""
    columns = Spec.parse(f"|{table.columns}").columns
    groups: dict[Any, list[Row]] = {}
    for row in rows(facts, table.each):
        groups.setdefault(value(row, table.by) if table.by else "", []).append(row)
    for group in groups.values():
        lines = [[column.text(row) or "-" for column in columns] for row in group]
        headers = [written(column.header, group[0]) for column in columns]
        if table.across:
            names = [str(value(row, table.across)) for row in group]
            headers, lines = across(headers[0], names, lines)
        if table.transposed:
            headers, *lines = [list(line) for line in zip(headers, *lines, strict=True)]
        else:
            headers = [header.replace(" ", "\n") for header in headers]  # narrow, as their values
        first, *others = headers
        title = written(table.title, group[0])
        made = output.table(f"={first}", *(f">{header}" for header in others), title=title)
        for line in lines:
            made.add_row(*line)
        yield made


def across(
    first: str, names: list[str], lines: list[list[str]]
) -> tuple[list[str], list[list[str]]]:
    """Lines of two cells as one line for each first cell, with a column for each name."""
    columns = list(dict.fromkeys(names))
    cells: dict[str, dict[str, str]] = {}
    for name, (key, text) in zip(names, lines, strict=True):
        cells.setdefault(key, {})[name] = text
    return [first, *columns], [
        [key, *(texts.get(name, "-") for name in columns)] for key, texts in cells.items()
    ]


def draw(picture: Picture, facts: Row, out: BinaryIO) -> None:
    """Write the picture as an SVG: the same bytes for the same result."""
    with svg(out, picture.size) as figure:
        height, width = len(picture.panels), max(map(len, picture.panels))
        grid: Any = figure.subplots(height, width, squeeze=False)
        for axes_of_row, panels in zip(grid, picture.panels, strict=True):
            for axes, panel in zip(axes_of_row, panels, strict=True):
                draw_panel(axes, panel, facts)
        grid[0][0].legend(fontsize=8)
        figure.suptitle(written(picture.title, facts), fontsize=10)


def draw_panel(axes: Any, panel: Panel, facts: Row) -> None:
    """Draw one chart."""
    if panel.span is not None:
        low, high, what = panel.span
        axes.axhspan(low, high, color="#e8e4d8", label=what)
    series: dict[str, list[Row]] = {}
    for row in rows(facts, panel.each):
        if all(value(row, key) == is_ for key, is_ in panel.where.items()):
            series.setdefault(str(value(row, panel.by)), []).append(row)
    for place, (name, points) in enumerate(series.items()):
        drawn = [row for row in points if is_drawn(value(row, panel.y), panel.y_log)]
        style = {"color": COLOURS[place % len(COLOURS)], "label": name}
        x, y = values(drawn, panel.x), values(drawn, panel.y)
        if panel.kind == "bars":
            width = 0.8 / len(series)
            left = [each + width * (place - (len(series) - 1) / 2) for each in x]
            axes.bar(left, y, width=0.92 * width, **style)
            continue
        marker = MARKERS[place % len(MARKERS)]
        if panel.most:
            above = [top - at for top, at in zip(values(drawn, panel.most), y, strict=True)]
            axes.errorbar(x, y, yerr=[[0.0] * len(y), above], marker=marker, capsize=3, **style)
        else:
            axes.plot(x, y, marker=marker, **style)
        if panel.dotted:
            axes.plot(x, values(drawn, panel.dotted), linestyle=":", color=style["color"])
    if panel.x_base:
        axes.set_xscale("log", base=panel.x_base)
    if panel.y_log:
        axes.set_yscale("log")
    axes.set_xlabel(written(panel.x_label, facts))
    axes.set_ylabel(written(panel.y_label, facts))
    axes.grid(visible=True, which="major", alpha=0.3)


def is_drawn(y: float | None, y_log: bool) -> bool:
    """Whether a point has a place in a chart."""
    return y is not None and (y > 0 or not y_log)


def values(found: Sequence[Row], key: str) -> list[float]:
    """What rows have under a key."""
    return [value(row, key) for row in found]
