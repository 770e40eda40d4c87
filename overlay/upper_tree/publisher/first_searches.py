"""Trees that are new to a publisher are looked for at the same time, and are found one by one.

Were each visited when it is found, the events that wait for the tree found first would come before
all others, whichever was published first. So an event that waits for a tree waits for those of
earlier events, too, unless some search takes longer than `SEARCH_TOGETHER`. That is so only for
trees that nothing is known of: events for trees that are known leave at once, and so does what has
to be sent again.
"""

from __future__ import annotations

from collections.abc import Mapping

from overlay.bounded import BoundedDict
from overlay.upper_tree.publisher.constants import SEARCH_TOGETHER, SEARCHES_MOST


class FirstSearches:
    """The trees for which some events wait, of one publisher. Times are the Port's seconds."""

    def __init__(self) -> None:
        self._unfinished: BoundedDict[str, float] = BoundedDict(SEARCHES_MOST)  # and since when
        self._found: dict[str, float] = {}  # and when

    @property
    def held(self) -> Mapping[str, float]:
        """Trees that were found, and not all that waits for them may leave."""
        return self._found

    @property
    def unfinished(self) -> Mapping[str, float]:
        """Trees that are looked for, or held, and since when."""
        return self._unfinished

    def began(self, attribute: str, now: float) -> None:
        """Nothing is known of this tree, and an event waits for it."""
        if attribute not in self._unfinished:
            self._unfinished[attribute] = now

    def found(self, attribute: str, now: float) -> None:
        """The tree is found: `take` says when it may be visited."""
        self._found.setdefault(attribute, now)

    def ended(self, attribute: str) -> None:
        """The tree has no subscribers."""
        self._unfinished.pop(attribute, None)
        self._found.pop(attribute, None)

    def take(self, now: float) -> tuple[list[str], list[str], float | None]:
        """The trees that may be visited now by all that waits for them; the searches that the
        others wait for, and after how many seconds to ask again (None: there are no others)."""
        found = self._found
        for attribute in [
            name for name, at in self._unfinished.items() if at + SEARCH_TOGETHER <= now
        ]:
            if attribute not in found:
                del self._unfinished[attribute]
        waited_for = {name: at for name, at in self._unfinished.items() if name not in found}
        first = min([at for name, at in found.items() if name in self._unfinished], default=now)
        if not waited_for or first + SEARCH_TOGETHER <= now:
            ready = list(found)
        else:
            ready = [name for name in found if name not in self._unfinished]
        for attribute in ready:
            self.ended(attribute)
        if not found:
            return ready, [], None
        left = min(first, max(waited_for.values())) + SEARCH_TOGETHER - now
        return ready, list(waited_for), left
