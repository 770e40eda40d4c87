"""GeoJSON (RFC 7946) as the USGS serves earthquakes: the features of a collection, or a Feature.

A feature's attributes are its properties with `longitude`, `latitude` and `depth` of its point; the
feature's own `id` overrides a property `id`. Overridden and nested properties, geometries that are
not points, and other members are in the payload, under `properties`, `geometry` and their names.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from canopy.feeds.drafts import (
    BadEventError,
    Faulty,
    check_fields,
    check_nested,
    is_scalar,
    set_type,
    split_fields,
)
from canopy.feeds.jsontext import draft_of
from matching import Value
from overlay.client import Draft

PLACES: Final = ("longitude", "latitude", "depth")


def is_collection(value: Any) -> bool:
    """Return whether a JSON value is a FeatureCollection (RFC 7946, section 3.3)."""
    return (
        isinstance(value, Mapping)
        and not isinstance(value, Faulty)
        and value.get("type") == "FeatureCollection"
        and isinstance(value.get("features"), list)
    )


def is_feature(value: Any) -> bool:
    """Return whether a JSON value is a single Feature, with the other two members of section
    3.2."""
    return (
        isinstance(value, Mapping)
        and value.get("type") == "Feature"
        and _is_object(value, "properties")
        and _is_object(value, "geometry")
    )


def _is_object(value: Mapping[str, Any], name: str) -> bool:
    """Return whether a member exists and is an object or null."""
    return name in value and (value[name] is None or isinstance(value[name], Mapping))


def feature_draft(feature: Any) -> Draft:
    """Return the event in one feature. Raises BadEventError."""
    for part in (feature, feature.get("geometry") if isinstance(feature, Mapping) else None):
        if isinstance(part, Faulty):
            raise BadEventError(part.fault)
    if not isinstance(feature, Mapping) or feature.get("type") != "Feature":
        raise BadEventError("not a feature: expected an object with type Feature")
    properties = feature.get("properties")
    if properties is None:
        properties = {}
    if not isinstance(properties, Mapping):
        raise BadEventError("the properties are not an object")
    check_fields(properties)
    attributes, rest = split_fields(properties)
    point, odd = _point(feature.get("geometry"))
    own: dict[str, Any] = dict(point)
    identity = feature.get("id")
    if identity is not None and is_scalar(identity):
        own["id"] = identity
    check_fields(own)
    for name, value in own.items():
        if attributes.get(name) is not None and attributes[name] != value:
            rest[name] = attributes[name]
        attributes[name] = value
    set_type(attributes, rest)
    kept = ("type", "properties", "geometry", *(("id",) if "id" in own else ()))
    outside = {n: value for n, value in feature.items() if n not in kept and value is not None}
    if odd is not None:
        outside["geometry"] = odd
    if rest:
        outside["properties"] = rest
    for name, value in outside.items():
        check_nested(name, value)
    return draft_of(attributes, outside)


def _point(geometry: Any) -> tuple[dict[str, Value], Any]:
    """Return longitude, latitude and depth of a point, and the geometry itself if it is no plain
    point."""
    if geometry is None:
        return {}, None
    place = geometry.get("coordinates") if isinstance(geometry, Mapping) else None
    if (
        isinstance(geometry, Mapping)
        and geometry.get("type") == "Point"
        and isinstance(place, list)
        and 2 <= len(place) <= 3
        and all(type(part) in (int, float) or part is None for part in place)
    ):
        found = {n: part for n, part in zip(PLACES, place, strict=False) if part is not None}
        more = [name for name in geometry if name not in ("type", "coordinates")]
        return found, geometry if more else None
    return {}, geometry
