"""What became of the events of feeds: counted and said by `canopy pub`."""

from __future__ import annotations

import sys
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import click

from canopy.cli.constants import COUNT_INTERVAL, REFUSED_LISTED, REFUSED_PRINTED
from overlay.wording import counted

if TYPE_CHECKING:
    from canopy.client.publication import PublishResult
    from canopy.feeds import Refusal
    from overlay.client import Draft


@dataclass
class FeedTotals:
    """How many events of the feeds were published and refused; `listed` are the first ones of
    those that were refused, `first` and `last` the ids of events that were not (the identity of an
    event without an id)."""

    published: int = 0
    first: str = ""
    last: str = ""
    refused: int = 0
    listed: list[tuple[str, Refusal]] = field(default_factory=list)
    reasons: dict[str, int] = field(default_factory=dict)
    hosts: Counter[str] = field(default_factory=Counter)  # events by the node that accepted them
    shown_at: float = field(default_factory=time.monotonic)

    def publish(self, drafts: Sequence[Draft], done: PublishResult) -> None:
        """Count a batch's events that were published, and note which are the first and the last of
        all."""
        from canopy.feeds import id_text

        names = [
            id_text(draft.attributes.get("id")) or identity
            for draft, identity in zip(drafts, done.identities, strict=True)
            if identity
        ]
        self.published += len(names)
        self.hosts.update(host for hosts in done.hosts for host in dict.fromkeys(hosts.values()))
        if names:
            self.first, self.last = self.first or names[0], names[-1]

    def refuse(self, name: str, refusal: Refusal) -> None:
        """Count one refusal of the feed `name` ("": the only one); keep the first `REFUSED_LISTED`,
        and print each reason once, `REFUSED_PRINTED` of them."""
        self.refused += 1
        if len(self.listed) < REFUSED_LISTED:
            self.listed.append((name, refusal))
        if refusal.reason in self.reasons:
            self.reasons[refusal.reason] += 1
        elif len(self.reasons) < REFUSED_PRINTED:
            self.reasons[refusal.reason] = 1
            line = f"line {refusal.number}" if refusal.number else ""
            place = ", ".join(part for part in (name, line) if part)
            click.echo(f"{place}: {refusal.reason}" if place else refusal.reason, err=True)

    def show(self) -> None:
        """On a terminal, say from time to time how many events are published."""
        if sys.stderr.isatty() and time.monotonic() - self.shown_at > COUNT_INTERVAL:
            self.shown_at = time.monotonic()
            click.echo(f"\rpublished {self.published} events ", err=True, nl=False)

    def repeated(self) -> Iterator[str]:
        """What is said in the end of reasons that came again or were not printed."""
        for reason, times in self.reasons.items():
            if times > 1:
                yield f"… {counted(times - 1, 'more line')}: {reason}"
        rest = self.refused - sum(self.reasons.values())
        if rest:
            yield f"… {counted(rest, 'more line')} for other reasons"
