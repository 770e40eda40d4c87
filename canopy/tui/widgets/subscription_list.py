"""The list of subscriptions: name, selector, state, deliveries, rate; the first line is for all."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

from rich.text import Text
from textual.binding import Binding, BindingType
from textual.message import Message
from textual.widgets import OptionList
from textual.widgets.option_list import Option

from canopy.tui.model.attachment import SubscriptionEntry
from canopy.tui.model.rates import Rate, show_rate
from canopy.tui.model.subscriber import SubscriptionState
from canopy.tui.model.text import fit
from canopy.tui.widgets.event_columns import fit_cells
from overlay.phrases import visible

# A mark and a word for each state, so that no meaning depends on colour.
MARKS = {
    SubscriptionState.LIVE: ("●", "live"),
    SubscriptionState.WAITING: ("◌", "waiting"),
    SubscriptionState.PAUSED: ("‖", "paused"),
    SubscriptionState.FAILED: ("✗", "refused"),
}
ONE_LINE = 60  # cells from which a subscription fits on one line


class SubscriptionList(OptionList):
    """The list of subscriptions; the events of the highlighted one are shown."""

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("d,delete", "request('remove')", "Remove", tooltip="Remove this subscription"),
        Binding("p", "request('pause')", "Pause", tooltip="Pause or resume this subscription"),
        Binding("e", "request('edit')", "Edit", tooltip="Change this subscription's selector"),
    ]

    @dataclass
    class Chosen(Message):
        """The user wants to see the events of this subscription (None: of all)."""

        key: int | None

    @dataclass
    class ActionRequested(Message):
        """The user requests the action `what` ("remove", "pause", "edit") for the subscription
        `key`."""

        what: str
        key: int

    def __init__(self, id: str | None = None) -> None:
        super().__init__(id=id)
        self._keys: list[int | None] = []
        self._shown: list[str] = []

    @property
    def chosen(self) -> int | None:
        """The highlighted subscription's key; None for all."""
        at = self.highlighted
        return None if at is None or at >= len(self._keys) else self._keys[at]

    def show(self, subscriptions: Sequence[SubscriptionEntry], total: Rate) -> None:
        """Update the lines; only changed lines are drawn."""
        keys: list[int | None] = [None, *(s.key for s in subscriptions)]
        prompts = [self._all(subscriptions, total), *(self._line(s) for s in subscriptions)]
        texts = [prompt.markup for prompt in prompts]
        if keys != self._keys:
            chosen = self.chosen
            self._keys, self._shown = keys, texts
            with self.prevent(OptionList.OptionHighlighted):
                self.clear_options()
                self.add_options([Option(prompt) for prompt in prompts])
                self.highlighted = keys.index(chosen) if chosen in keys else 0
            if chosen not in keys:
                self.post_message(self.Chosen(None))
            return
        for at, text in enumerate(texts):
            if text != self._shown[at]:
                self._shown[at] = text
                self.replace_option_prompt_at_index(at, prompts[at])

    def choose(self, key: int) -> None:
        """Highlight the subscription `key`."""
        if key in self._keys:
            self.highlighted = self._keys.index(key)

    def action_request(self, what: str) -> None:
        """Post `ActionRequested` if a subscription is highlighted."""
        if self.chosen is not None:
            self.post_message(self.ActionRequested(what, self.chosen))

    def on_option_list_option_highlighted(self, event: OptionList.OptionHighlighted) -> None:
        """Post `Chosen` for the highlighted line."""
        event.stop()
        self.post_message(self.Chosen(self.chosen))

    @property
    def _cells(self) -> int:
        return max(20, self.scrollable_content_region.width - 2)

    def _all(self, subscriptions: Sequence[SubscriptionEntry], total: Rate) -> Text:
        if not subscriptions:
            return Text.assemble(("No subscriptions yet.", "bold"), " Press ", ("a", "bold"), ".")
        numbers = f"{total.total:,}  {show_rate(total.per_second)}"
        head = fit_cells("Σ all subscriptions", self._cells - len(numbers) - 1)
        return Text.assemble((f"{head} ", "bold"), numbers, no_wrap=True)

    def _line(self, subscription: SubscriptionEntry) -> Text:
        mark, word = MARKS[subscription.state]
        name, selector = visible(subscription.name), visible(subscription.selector)
        live = subscription.state is SubscriptionState.LIVE
        numbers = f"{subscription.rate.total:,}  {show_rate(subscription.rate.per_second)}"
        right = numbers if live else f"{numbers}  {word}"
        room = self._cells - len(right) - 3
        if self._cells >= ONE_LINE:
            head = fit_cells(name, 14)
            return Text.assemble(
                f"{mark} ",
                (head, "bold"),
                " ",
                fit_cells(selector, max(0, room - 15)),
                " ",
                right,
                no_wrap=True,
            )
        text = Text.assemble(f"{mark} ", (fit_cells(name, max(4, room)), "bold"), " ", right)
        text.append(f"\n  {fit(selector, self._cells - 2)}")
        why = subscription.reason
        if not why and subscription.pivots:
            why = f"acknowledged, by {', '.join(map(visible, subscription.pivots))}"
        if why:
            text.append(f"\n  {fit(visible(why), self._cells - 2)}", "dim")
        text.no_wrap = True
        return text
