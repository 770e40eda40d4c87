"""Flat JSON objects, one per line: scalars are attributes, the rest is payload."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from canopy.feeds.drafts import fields_of
from canopy.feeds.jsontext import draft_of
from overlay.client import Draft


def flat_draft(fields: Mapping[str, Any]) -> Draft:
    """The event in a flat object. Raises BadEventError."""
    return draft_of(*fields_of(fields))
