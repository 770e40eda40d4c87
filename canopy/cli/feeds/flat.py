"""Flat JSON objects, one per line: scalars are attributes, the rest is payload."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from canopy.cli.feeds.drafts import check_fields, check_nested, name_event, split
from canopy.cli.feeds.jsontext import draft_of
from overlay.client import Draft


def flat_draft(fields: Mapping[str, Any], number: int) -> Draft:
    """The event in a flat object. Raises BadEventError."""
    check_fields(fields)
    attributes, rest = split(fields)
    for name, value in rest.items():
        check_nested(name, value)
    name_event(attributes, rest, number)
    return draft_of(attributes, rest)
