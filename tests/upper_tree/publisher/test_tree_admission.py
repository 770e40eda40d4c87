"""What a program may publish: the check of each event, and of a uniform batch at once."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from matching import check_value
from matching.columnar import MIN_EVENTS
from overlay.client import Draft
from overlay.upper_tree.publisher.admission import refusal, uniform_batch
from overlay.upper_tree.publisher.constants import MAX_ATTRIBUTES, MAX_NAME


@pytest.mark.parametrize(
    ("attributes", "reason"),
    [
        ({"": 1}, "reserved"),
        ({"$event": 1}, "reserved"),
        ({"x": float("inf")}, "infinity"),
        ({"x": 1 << 63}, "64 bits"),
        ({"x": "\ud800"}, "surrogate"),
        ({"x": [1]}, "list"),
        ({"x" * (MAX_NAME + 1): 1}, "characters"),
        ({f"a{n}": n for n in range(MAX_ATTRIBUTES + 1)}, "attributes"),
        ({"x": "a" * (1 << 20)}, "bytes"),
    ],
)
def test_what_no_event_may_carry(attributes: dict[str, Any], reason: str) -> None:
    said = refusal(Draft(attributes))
    assert said is not None
    assert reason in said


def test_null_is_no_reason_to_refuse() -> None:
    assert refusal(Draft({"x": None, "y": 1})) is None
    assert check_value(None) is not None


@pytest.mark.parametrize(
    ("attributes", "payload"),
    [
        ({"x": float("nan")}, b""),
        ({"x": float("inf")}, b""),
        ({"x": 2**63}, b""),
        ({"x": "\ud800"}, b""),
        ({"x": [1]}, b""),
        ({"x": "a" * 600_000}, b""),
        ({"x": 1}, b"a" * 600_000),
        ({"x": "é"}, b""),
        ({"x": None}, b"fine"),
        ({"x": -(2**63)}, b""),
    ],
)
def test_the_batch_check_admits_nothing_that_the_check_of_each_event_refuses(
    attributes: Any, payload: bytes
) -> None:
    draft = Draft(attributes, payload)
    good = Draft(dict.fromkeys(attributes, 1.5))
    alike = uniform_batch([*[good] * MIN_EVENTS, draft, good])
    if alike is not None:
        assert refusal(draft) is None
        assert alike.names == tuple(attributes)
        assert alike.largest >= len(msgspec.msgpack.encode(draft))
        assert None not in attributes.values()
    assert uniform_batch([*[draft] * MIN_EVENTS, Draft({"other": 1})]) is None, "not the same names"


@pytest.mark.parametrize("values", [(1, 2), (True, False), ("a", "b"), (0.5, -2.0)])
def test_the_batch_check_recognises_many_values_of_one_kind(values: Any) -> None:
    alike = uniform_batch([Draft({"x": value, "y": 1.0}) for value in values * MIN_EVENTS])
    assert alike is not None
    assert alike.names == ("x", "y")
    assert uniform_batch([Draft({"x": values[0]})] * (MIN_EVENTS - 1)) is None, (
        "few are looked at one by one"
    )
