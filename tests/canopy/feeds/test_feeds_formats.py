"""CloudEvents, GeoJSON, MessagePack and tables: nothing of a valid event is lost."""

from __future__ import annotations

import base64
import io
import json
from pathlib import Path
from typing import Any

import msgpack  # type: ignore[import-untyped]
import pytest

from canopy.feeds import FeedEvent, Refusal, read_feed
from canopy.feeds.constants import EVENT_LIMIT
from overlay.client import Draft
from tests.canopy.feeds.feed_items import exactly, one, read, reason

EARTHQUAKES = Path(__file__).parents[3].parent / "shared" / "feeds" / "earthquakes.json"


class TestCloudEvents:
    base: dict[str, Any] = {"specversion": "1.0", "id": "e1", "source": "/s", "type": "t"}

    def event(self, **more: Any) -> Draft:
        return one(json.dumps({**self.base, **more}))

    def test_data_and_context_are_attributes_and_context_wins(self) -> None:
        found = self.event(data={"mag": 3.5, "type": "inner", "id": "e1"}, subject="x")
        assert found.attributes == {**self.base, "subject": "x", "mag": 3.5}
        assert json.loads(found.payload) == {"mag": 3.5, "type": "inner", "id": "e1"}

    def test_a_null_context_attribute_is_absent(self) -> None:
        assert self.event(subject=None, data={"subject": 1}).attributes["subject"] == 1

    def test_the_data_is_the_payload(self) -> None:
        data = {"a": 1, "b": [1], "c": {"d": 2}}
        found = self.event(data=data, datacontenttype="application/vnd.acme+json")
        del found.attributes["datacontenttype"]
        assert found.attributes == {**self.base, "a": 1}
        assert json.loads(found.payload) == data
        assert found.payload_type == "application/vnd.acme+json"

    @pytest.mark.parametrize("data", [[1, {"a": 2}], 17, "text", False])
    def test_other_data_travel_as_they_are(self, data: Any) -> None:
        found = self.event(data=data)
        assert found.attributes == self.base
        assert exactly(json.loads(found.payload)) == exactly(data)
        assert found.payload_type == "application/json"

    def test_text_of_a_type_of_its_own_is_that_text(self) -> None:
        found = self.event(data="<a/>", datacontenttype="text/xml")
        assert (found.payload, found.payload_type) == (b"<a/>", "text/xml")
        found = self.event(data="<a/>", datacontenttype="application/x+json; charset=utf-8")
        assert found.payload == b'"<a/>"'
        assert found.payload_type == "application/x+json; charset=utf-8"

    def test_data_base64_are_the_bytes(self) -> None:
        raw = bytes(range(256))
        found = self.event(data_base64=base64.b64encode(raw).decode(), datacontenttype="image/x")
        assert (found.payload, found.payload_type) == (raw, "image/x")

    def test_broken_ones_are_refused(self) -> None:
        cases: list[tuple[dict[str, Any], str]] = [
            ({"data_base64": "%%"}, "Base64"),
            ({"data_base64": 5}, "not a text"),
            ({"data": 1, "data_base64": ""}, "both"),
            ({"ext": {"a": 1}}, '"ext" is not allowed as a context attribute'),
            ({"data": {"a": float("nan")}}, "NaN"),
        ]
        for more, says in cases:
            assert says in reason(json.dumps({**self.base, **more}))
        assert "specversion" in reason('{"a": 1}', "cloudevents")

    def test_flat_and_cloud_events_mix(self) -> None:
        items = read(json.dumps(self.base) + '\n{"specversion": 5, "mag": 1}')
        assert [i.draft.attributes.get("mag") for i in items if isinstance(i, FeedEvent)] == [
            None,
            1,
        ]

    @pytest.mark.parametrize("missing", ["id", "source", "type"])
    def test_one_without_a_required_attribute_is_refused(self, missing: str) -> None:
        whole = dict(self.base)
        del whole[missing]
        assert reason(json.dumps(whole)) == f"not a CloudEvent: it has no {missing}"


class TestGeoJSON:
    def feature(self, **more: Any) -> dict[str, Any]:
        point = {"type": "Point", "coordinates": [-118.5, 34, 26.49]}
        return {"type": "Feature", "properties": {"mag": 2}, "geometry": point, "id": "x"} | more

    def draft(self, **more: Any) -> Draft:
        whole = {"type": "FeatureCollection", "features": [self.feature(**more)]}
        return one(json.dumps(whole, indent=1))

    def test_properties_and_place_are_attributes(self) -> None:
        found = self.draft()
        expected = {"mag": 2, "longitude": -118.5, "latitude": 34, "depth": 26.49, "id": "x"}
        assert exactly(found.attributes) == exactly({**expected, "type": "event"})
        assert found.payload == b""

    def test_the_features_id_wins_and_nothing_is_lost(self) -> None:
        found = self.draft(properties={"id": "inner", "depth": 5, "a": [1]}, bbox=[1, 2])
        assert (found.attributes["id"], found.attributes["depth"]) == ("x", 26.49)
        assert json.loads(found.payload) == {
            "properties": {"id": "inner", "depth": 5, "a": [1]},
            "bbox": [1, 2],
        }

    def test_other_geometries_travel_in_the_payload(self) -> None:
        line = {"type": "LineString", "coordinates": [[1, 2], [3, 4]]}
        found = self.draft(geometry=line)
        assert "longitude" not in found.attributes
        assert json.loads(found.payload) == {"geometry": line}

    def test_a_bad_feature_is_refused_and_the_rest_is_read(self) -> None:
        features = [
            self.feature(),
            self.feature(properties={"mag": float("nan")}),
            17,
            self.feature(properties=[1]),
            self.feature(id="y"),
        ]
        items = read(json.dumps({"type": "FeatureCollection", "features": features}))
        assert [type(i) for i in items] == [FeedEvent, Refusal, Refusal, Refusal, FeedEvent]
        assert [i.number for i in items] == [1, 2, 3, 4, 5]

    def test_a_file_that_is_none_is_one_refusal(self) -> None:
        assert "not JSON" in reason('{"type": "FeatureCollection", "features": [', "geojson")
        assert "not GeoJSON" in reason('{"type": "FeatureCollection"}', "geojson")

    @pytest.mark.skipif(not EARTHQUAKES.exists(), reason="the real week of earthquakes is absent")
    def test_a_real_week(self) -> None:
        items = read(EARTHQUAKES.read_bytes())
        whole = json.loads(EARTHQUAKES.read_bytes())["features"]
        assert len(items) == len(whole) == 1707
        for item, feature in zip(items, whole, strict=True):
            assert isinstance(item, FeedEvent)
            place = feature["geometry"]["coordinates"]
            expected = feature["properties"] | {"id": feature["id"]}
            expected |= dict(zip(("longitude", "latitude", "depth"), place, strict=True))
            assert exactly(item.draft.attributes) == exactly(expected)
            assert item.draft.payload == b""


class TestMessagePack:
    def test_maps_follow_each_other(self) -> None:
        events = [{"a": 1}, {"id": "x", "b": 1.0, "c": None, "type": "t"}]
        items = read(b"".join(msgpack.packb(e) for e in events))
        assert [i.draft.attributes for i in items if isinstance(i, FeedEvent)] == [
            {"a": 1, "id": "1", "type": "event"},
            events[1],
        ]

    def test_binary_and_extensions_survive(self) -> None:
        rest = {"b": b"\xff\x00", "l": [1, {"x": b"y"}], "t": msgpack.Timestamp(5, 6)}
        found = one(msgpack.packb({"a": True, **rest}))
        assert found.attributes == {"a": True, "id": "1", "type": "event"}
        assert msgpack.unpackb(found.payload) == rest
        assert found.payload_type == "application/msgpack"

    def test_a_bad_map_is_refused_and_the_rest_is_read(self) -> None:
        good = msgpack.packb({"a": 1})
        bad = [
            (msgpack.packb({"a": 2**63}), "64 bits"),
            (msgpack.packb({"a": float("nan")}), "NaN"),
            (msgpack.packb({5: 1}), "not a text"),
            (b"\x81\xa1a\xa1\xff", "invalid UTF-8"),
            (b"\x82\xa1a\x01\xa1a\x02", "given twice"),
            (msgpack.packb([1]), "not a map"),
            (msgpack.packb({"a": b"x" * EVENT_LIMIT}), "larger"),
        ]
        items = read(good + b"".join(raw + good for raw, _ in bad))
        assert [type(i) for i in items] == [FeedEvent] + [Refusal, FeedEvent] * len(bad)
        for item, (_, says) in zip(items[1::2], bad, strict=True):
            assert isinstance(item, Refusal)
            assert says in item.reason

    @pytest.mark.parametrize("cut", range(1, 12))
    def test_a_cut_off_end_is_reported(self, cut: int) -> None:
        whole = msgpack.packb({"a": [1, {"b": "cd"}], "e": 2.5})
        items = read(msgpack.packb({"a": 1}) + whole[:-cut], "msgpack")
        assert isinstance(items[0], FeedEvent)
        assert items[1:] == [Refusal(2, "cut off in the middle of a map")]

    def test_a_broken_byte_ends_the_reading(self) -> None:
        items = read(msgpack.packb({"a": 1}) + b"\xc1" + msgpack.packb({"a": 2}))
        assert isinstance(items[1], Refusal)
        assert "the rest is not read" in items[1].reason
        assert len(items) == 2

    def test_an_endless_map_is_not_kept(self) -> None:
        items = read(b"\x81\xa1a\xdd\x7f\xff\xff\xff" + b"\x01" * (4 * EVENT_LIMIT))
        assert len(items) == 1
        assert isinstance(items[0], Refusal)


class TestTables:
    def test_types_are_inferred_field_by_field(self) -> None:
        text = "i,f,b,t,zip,empty,big\n-7,1.5e3,TRUE,Nome,01234,,99999999999999999999\n"
        expected = {"i": -7, "f": 1500.0, "b": True, "t": "Nome", "zip": "01234", "empty": None}
        expected |= {"big": "99999999999999999999", "id": "2", "type": "event"}
        assert exactly(one(text).attributes) == exactly(expected)

    @pytest.mark.parametrize("separator", [",", ";", "\t", "|"])
    def test_separators_quotes_and_fields_over_many_lines(self, separator: str) -> None:
        text = 'a,b\r\n"x, ""y""\nz",2\r\n'.replace(",", separator)
        found = one(text).attributes
        assert found["a"] == f'x{separator} "y"\nz'
        assert found["b"] == 2

    def test_a_type_can_be_given(self) -> None:
        raw = b"zip,mag\n9,5\n8,x\n"
        good, bad = read_feed(io.BytesIO(raw), "auto", {"zip": "text", "mag": "float"})
        assert isinstance(good, FeedEvent)
        assert exactly(good.draft.attributes["zip"]) == (str, "9")
        assert exactly(good.draft.attributes["mag"]) == (float, 5.0)
        assert isinstance(bad, Refusal)
        assert (bad.number, bad.reason) == (3, '"mag": "x" is no float')

    def test_a_row_of_another_length_is_refused_and_the_rest_is_read(self) -> None:
        first, second, third = read("a,b\n1,2\n3\n4,5\n")
        assert isinstance(second, Refusal)
        assert second.reason == "1 field, where the header has 2"
        assert isinstance(first, FeedEvent)
        assert isinstance(third, FeedEvent)

    def test_a_field_may_be_as_long_as_a_line(self) -> None:
        long = "x" * 300_000
        for field in (long, f'"{long[:150_000]}\n{long[150_000:-1]}"'):
            first, second = read(f"a,b\n1,{field}\n2,y\n")
            assert isinstance(first, FeedEvent)
            assert len(str(first.draft.attributes["b"])) == 300_000
            assert isinstance(second, FeedEvent)

    def test_text_that_is_not_in_utf_8_is_named(self) -> None:
        assert "invalid UTF-8" in reason(b"a,b\n1,caf\xe9\n")
        assert "this looks like text in UTF-16" in reason("a,b\n1,2\n".encode("utf-16"))

    @pytest.mark.parametrize(
        ("text", "says"), [("a,a\n1,2\n", '"a" is there twice'), ("a,\n1,2\n", "has no name")]
    )
    def test_a_bad_header_refuses_all(self, text: str, says: str) -> None:
        assert says in reason(text, "csv")

    def test_a_column_that_is_not_there_is_named(self) -> None:
        (found,) = read_feed(io.BytesIO(b"a,b\n1,2\n"), "csv", {"c": "int"})
        assert isinstance(found, Refusal)
        assert 'no column "c"' in found.reason
