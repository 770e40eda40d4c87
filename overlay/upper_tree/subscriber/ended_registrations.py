"""Registrations that this node has ended, until their owners have said so.

A program that goes may leave tens of thousands. Whatever is asked here is answered without looking
through all of them: they stand in the order in which their owners are asked.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Collection, Iterable
from typing import TypeAlias

RegistrationKey: TypeAlias = tuple[str, str]
"""(attribute, registration id)."""


class EndedRegistrations:
    """Registrations that ended here and that no owner has confirmed as ended. Times are the Port's
    seconds."""

    def __init__(self) -> None:
        self._new: OrderedDict[RegistrationKey, None] = OrderedDict()
        self._asked: OrderedDict[RegistrationKey, float] = OrderedDict()  # when to ask again

    def __len__(self) -> int:
        return len(self._new) + len(self._asked)

    def attributes(self) -> dict[str, None]:
        """The trees in which some registration is about to end."""
        keys = (*self._new, *self._asked)
        return dict.fromkeys(attribute for attribute, _ in keys)

    def add(self, keys: Iterable[RegistrationKey]) -> None:
        """They end: their owners are to be asked next."""
        self._new.update(dict.fromkeys(keys))

    def take(self, now: float, most: int) -> list[RegistrationKey]:
        """At most so many whose owners are to be asked now; each is to be given back by `asked`, or
        is forgotten."""
        taken: list[RegistrationKey] = []
        while self._new and len(taken) < most:
            taken.append(self._new.popitem(last=False)[0])
        while self._asked and len(taken) < most and next(iter(self._asked.values())) <= now:
            taken.append(self._asked.popitem(last=False)[0])
        return taken

    def asked(self, key: RegistrationKey, again_at: float) -> None:
        """Its owner was asked, or looked for, and is asked again at that time: never earlier than
        another that was given back before."""
        self._asked[key] = again_at

    def next_at(self, now: float) -> float | None:
        """When there is something to take; None: nothing waits."""
        return now if self._new else next(iter(self._asked.values()), None)

    def answered(self, keys: Iterable[RegistrationKey]) -> None:
        """Drop registrations whose owner has ended them."""
        for key in keys:
            self._new.pop(key, None)
            self._asked.pop(key, None)

    def ask_all_again(self) -> None:
        """Their owners are others now: all are to be asked next."""
        self._new.update(dict.fromkeys(self._asked))
        self._asked.clear()

    def forget(self, attributes: Collection[str]) -> None:
        """Leave those of these trees to their leases."""
        for keys in (self._new, self._asked):
            for key in [key for key in keys if key[0] in attributes]:
                del keys[key]

    def clear(self) -> None:
        """Drop all: their leases will run out."""
        self._new.clear()
        self._asked.clear()
