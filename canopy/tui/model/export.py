"""Events as JSON text, and files of them."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, TypeAlias

from canopy.tui.model.log import LogRow
from overlay.client import Delivery
from overlay.wording import shown_json

AsObject: TypeAlias = Callable[[Delivery], dict[str, Any]]
"""The JSON object of a delivery; `canopy tui` gives that of `canopy sub --json`."""


def delivery_of(row: LogRow, key: int | None) -> Delivery:
    """The delivery of `row` to the subscription `key`, else its first one."""
    found = row.deliveries.get(key) if key is not None else None
    return found or next(iter(row.deliveries.values()))


def event_json(row: LogRow, key: int | None, as_object: AsObject) -> str:
    """The event on one line, as it was delivered to the subscription `key`."""
    return shown_json(json.dumps(as_object(delivery_of(row, key)), ensure_ascii=False))


def file_name(row: LogRow) -> str:
    """A name for the file of an event: its id, without what a shell or a path may misread."""
    name = re.sub(r"[^\w.-]+", "-", str(row.event.attributes.get("id", ""))).strip("-.")
    return f"{name[:60] or 'event'}.json"


def write_new(path: Path, lines: Sequence[str]) -> None:
    """Write `lines` to a file that does not exist yet. Raises OSError, and leaves no part then."""
    with path.open("x", encoding="utf-8") as file:
        try:
            file.writelines(f"{line}\n" for line in lines)
            file.flush()
        except OSError:
            path.unlink(missing_ok=True)
            raise
