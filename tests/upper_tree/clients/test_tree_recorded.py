"""What trace records say of the subscriptions and events of this node's programs."""

from __future__ import annotations

import json
from typing import Any
from zlib import crc32

import pytest

from overlay.client import Draft, Event, Failed, Publish
from overlay.lower_random.documents import DocumentChanged
from overlay.lower_random.policies import POLICY
from overlay.tenants.policy import Policy, TenantPolicy
from overlay.upper_tree.event_history import digest_of
from tests.upper_tree.clients.clients_rig import Rig


class Store:
    """The policy that holds."""

    def __init__(self, permitted: str) -> None:
        self.policy = Policy(1, {"acme": TenantPolicy("x = 1", permitted)})

    def __getattr__(self, name: str) -> Any:
        raise AssertionError(f"nobody asks for {name}")


def texts(rig: Rig, kind: str) -> list[Any]:
    return [each["permitted"] and each["permitted"]() for each in rig.port.traced(kind)]


def test_a_refused_subscription_leaves_no_gap_in_the_numbers() -> None:
    rig = Rig()
    first = rig.subscribe("a > 1")
    for selector in ("a >", "(" * 200 + "a" + ")" * 200):
        with pytest.raises(IndexError):
            rig.subscribe(selector)
        assert rig.port.answers(Failed)
    assert rig.subscribe("a > 2") == first.removesuffix("1") + "2"
    assert [each["subscription"] for each in rig.port.traced("subscribe")] == [
        first,
        first.removesuffix("1") + "2",
    ]
    assert rig.clients.numbered == 2


def test_what_the_policy_leaves_of_a_tenants_subscription_is_recorded() -> None:
    store = Store("region = 'eu'")
    rig = Rig(tenant="acme", store=store)
    rig.subscribe("a > 1")
    asked = [">", ["attr", "a"], ["lit", 1]]
    both = ["and", ["cmp", *asked], ["cmp", "=", ["attr", "region"], ["lit", "eu"]]]
    assert texts(rig, "subscribe") == [both]
    store.policy = Policy(2, {})
    rig.port.emit(DocumentChanged(POLICY))
    rig.port.turn()
    assert texts(rig, "confined") == [["lit", False]]
    operators = Rig()
    operators.subscribe("a > 1")
    assert texts(operators, "subscribe") == [None]


def test_the_digest_is_of_content_and_nothing_else() -> None:
    def digest(attributes: dict[str, Any], payload: bytes = b"") -> int:
        return digest_of(Event("p", 1, 1, 0.0, attributes, payload))

    attributes = {"b": 1.5, "a": "ä", "c": None, "d": True}
    text = json.dumps(attributes, sort_keys=True, separators=(",", ":"), ensure_ascii=False)
    assert digest(attributes, b"xy") == crc32(text.encode()) << 31 | crc32(b"xy") >> 1 < 1 << 63
    assert digest(dict(reversed(attributes.items()))) == digest(attributes)
    others = [{**attributes, "d": 1}, {**attributes, "b": 1}, {"b": 1.5}]
    assert len({digest(attributes), *map(digest, others), digest(attributes, b"x")}) == 5


def test_a_delivery_and_its_publication_have_the_same_digest() -> None:
    rig = Rig()
    rig.subscribe("a > 1")
    rig.command(1, Publish, (Draft({"id": "u7", "a": 5}, b"payload"),))
    rig.settle()
    (published,), (delivered,) = rig.port.traced("publish"), rig.port.traced("deliver")
    assert published["digest"] == delivered["digest"]
    assert published["id"] == delivered["id"] == "u7"
    assert rig.publisher.numbered == 1
