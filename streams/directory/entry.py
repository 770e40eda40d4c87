"""What the directory knows of a stream: one value in the log of the cluster that owns its name."""

from __future__ import annotations

import re
from typing import Annotated, Final, Literal

import msgspec
from msgspec.structs import replace

from matching import SelectorError, compile_selector
from overlay.chord.keys import key_of
from overlay.machine import Duration, Key, NodeId, Peer
from overlay.regions import holds
from streams.log.receipt import shard_name
from streams.log.writers import ANYBODY, Names, fault_in_writers

NAME_MOST: Final = 200
"""Characters of a stream's name. Names of files are made of ids, never of names; the bound is that
of Kafka's topics (249), rounded down."""

SHARDS_MOST: Final = 64
"""Shards of a stream. Guess; each takes part in the heartbeats of its owner, and a stream that
needs more is rather two."""

REPLICAS_MOST: Final = 7
"""Replicas of a shard: three nodes may fail together."""

ATTRIBUTE_MOST: Final = 256
"""Characters of an attribute's name in a stream's options at most."""

SELECTOR_MOST: Final = 16 * 1024
"""Characters of a selector at most (`matching.selector.expression.MAX_TEXT`)."""

DROP_OLDEST: Final = "drop-oldest"

AVAILABILITY: Final = "availability"

PREFIX: Final = "stream:"
"""Before a stream's name in the directory."""


SOURCES_MOST: Final = 64
"""Streams that one stream copies. Guess."""


class StreamSource(msgspec.Struct, frozen=True, array_like=True):
    """A stream that is copied: the rows that the selector `where` is true for, "": all."""

    stream: Annotated[str, msgspec.Meta(max_length=NAME_MOST)]
    where: Annotated[str, msgspec.Meta(max_length=SELECTOR_MOST)] = ""


class StreamOptions(msgspec.Struct, frozen=True, omit_defaults=True, forbid_unknown_fields=True):
    """What a stream was founded with."""

    shards: Annotated[int, msgspec.Meta(ge=1, le=SHARDS_MOST)] = 1
    by: Annotated[str, msgspec.Meta(max_length=ATTRIBUTE_MOST)] = ""
    """The attribute whose value chooses an event's shard; "": there is one shard only."""
    replicas: Annotated[int, msgspec.Meta(ge=1, le=REPLICAS_MOST)] = 3
    """Nodes that are to have each shard; fewer while the overlay has fewer."""
    keep_seconds: Annotated[float, msgspec.Meta(ge=0)] = 0.0
    """How long rows are kept at least; 0: as long as there is room by `keep_bytes`."""
    keep_bytes: Annotated[int, msgspec.Meta(ge=0, le=1 << 62)] = 0
    """Bytes of a shard's log that are kept; 0: without a bound."""
    capture: Annotated[str, msgspec.Meta(max_length=SELECTOR_MOST)] = ""
    """The selector of published events that are appended; "": none are."""
    sources: Annotated[tuple[StreamSource, ...], msgspec.Meta(max_length=SOURCES_MOST)] = ()
    """Streams whose rows are appended."""
    mirror: Annotated[str, msgspec.Meta(max_length=NAME_MOST)] = ""
    """The stream whose rows it has, with the offsets that they have there; "": none."""
    region: Annotated[str, msgspec.Meta(max_length=64)] = ""
    """Where its replicas are to be; "": anywhere."""
    drop_unread: bool = False
    """Whether `keep_seconds` and `keep_bytes` also let go of what durable consumers have not
    read."""
    expire_consumers: Duration = 0.0
    """Seconds of silence after which a durable consumer is forgotten; 0: never."""
    max_bytes: Annotated[int, msgspec.Meta(ge=0, le=1 << 62)] = 0
    max_rows: Annotated[int, msgspec.Meta(ge=0, le=1 << 53)] = 0
    """What each shard may have; 0: without a bound."""
    when_full: Literal["refuse", "drop-oldest"] = "refuse"
    """What becomes of new rows then: they are refused, or the oldest ones make room."""
    key: Annotated[str, msgspec.Meta(max_length=ATTRIBUTE_MOST)] = ""
    """The attribute of whose values each has its newest row kept, however old; "": none."""
    deletes: Annotated[str, msgspec.Meta(max_length=SELECTOR_MOST)] = ""
    """The selector of rows that delete their key; "": those that have the key only, beside `id`
    and `type`, and no payload."""
    ttl_seconds: Duration = 0.0
    """How long a row is of use after it was appended; 0: for ever."""
    ttl_by: Annotated[str, msgspec.Meta(max_length=ATTRIBUTE_MOST)] = ""
    """The attribute with the seconds of a row that has its own; "": none has."""
    prefer: Literal["consistency", "availability"] = "consistency"
    """Whether replicas without a majority refuse rows, or take them into a fork
    (streams/services/fork/)."""
    writers: Names = ()
    """Who may append (streams/log/writers.py): producer:NAME, node:ID, tenant:NAME; (), or *:
    anybody."""


class ShardPlace(msgspec.Struct, frozen=True, array_like=True):
    """Where a shard is, as far as its owner has heard. `is_founded`: it has had a leader, so that
    its log says who its replicas are, and this is a hint."""

    replicas: tuple[Peer, ...]
    is_founded: bool = False


class StreamEntry(msgspec.Struct, frozen=True, array_like=True):
    """A stream. `id` is drawn at its founding: another stream of the same name has another one.
    `removed`: it is a tombstone, by which nodes know that its shards are to be destroyed."""

    name: str
    id: str
    options: StreamOptions
    places: tuple[ShardPlace, ...]
    removed: bool = False

    def shard(self, number: int) -> str:
        """The name of a shard."""
        return shard_name(self.id, number)

    def shards(self) -> tuple[str, ...]:
        """The names of all shards."""
        return tuple(self.shard(number) for number in range(len(self.places)))

    def placed(self, number: int, place: ShardPlace) -> StreamEntry:
        """The same with one shard elsewhere."""
        places = list(self.places)
        places[number] = place
        return replace(self, places=tuple(places))


def directory_name(stream: str) -> str:
    """The name under which the directory has a stream."""
    return PREFIX + stream


def stream_key(stream: str) -> Key:
    """The key whose owner has the stream's entry."""
    return key_of(directory_name(stream))


def fault_in_name(name: str) -> str:
    """Why a stream cannot have this name; "": it can."""
    if not name:
        return "a stream needs a name"
    if len(name) > NAME_MOST:
        return f"a stream's name has at most {NAME_MOST} characters, this one has {len(name)}"
    if not name.isprintable() or name != name.strip():
        return "a stream's name has no control characters, and no space at its ends"
    return ""


def fault_in_options(options: StreamOptions) -> str:
    """What is contradictory in these options; "": nothing."""
    if options.shards > 1 and not options.by:
        return "several shards need --by ATTRIBUTE, which chooses the shard of an event"
    if options.replicas % 2 == 0:
        return (
            f"{options.replicas} replicas stand the loss of as many nodes as "
            f"{options.replicas - 1} do: take an odd number"
        )
    if options.mirror and (options.capture or options.sources):
        return "a mirror has the rows of its origin only: no --capture, no --source"
    if len({source.stream for source in options.sources}) < len(options.sources):
        return "a stream is named twice as a source"
    if options.when_full == DROP_OLDEST and not (options.max_bytes or options.max_rows):
        return "--when-full drop-oldest needs --max-bytes or --max-rows"
    if options.key and options.shards > 1 and options.by != options.key:
        return (
            f"all rows of a key belong in one shard: --key {options.key} needs --by {options.key}"
        )
    if options.mirror and options.prefer == AVAILABILITY:
        return "programs append nothing to a mirror: --prefer availability belongs to its origin"
    if wrong := fault_in_writers(options.writers):
        return wrong
    if options.writers and ANYBODY not in options.writers and (options.capture or options.sources):
        return (
            "--writer goes without --capture and --source: what a stream takes in of itself would "
            "be of anybody who publishes, or appends there"
        )
    if options.deletes and not options.key:
        return "--deletes goes with --key"
    for selector in (
        options.capture,
        options.deletes,
        *(source.where for source in options.sources),
    ):
        try:
            if selector:
                compile_selector(selector)
        except SelectorError as error:
            return f"{error}\n{error.caret()}"
    return ""


def fault_in_entry(entry: StreamEntry) -> str:
    """Why no owner has founded such a stream; "": it can be one's."""
    if len(entry.places) != entry.options.shards:
        return "a stream has a place for each of its shards"
    return fault_in_name(entry.name) or fault_in_options(entry.options)


_SPOKEN: Final = {
    "keep_seconds": "keep-for",
    "keep_bytes": "keep-size",
    "sources": "source",
    "writers": "writer",
    "ttl_seconds": "ttl",
}
"""Names of options to users, where they are others."""


def differing(known: StreamOptions, asked: StreamOptions) -> str:
    """In which options, named as users name them, two foundings differ; "": in none."""
    return ", ".join(
        "--" + _SPOKEN.get(name, name.replace("_", "-"))
        for name in known.__struct_fields__
        if getattr(known, name) != getattr(asked, name)
    )


_OUTSIDE: Final = re.compile(r"Expected `\w+` (of length )?([<>])= (-?[\d.]+) - at `\$\.(\w+)")


def unfit(error: msgspec.ValidationError) -> str:
    """What is wrong with options that are none, in the users' words for them."""
    found = _OUTSIDE.match(str(error))
    if found is None:
        return str(error)
    length, sign, bound, name = found.groups()
    option = "--" + _SPOKEN.get(name, name.replace("_", "-"))
    return f"{option}: {'at most' if sign == '<' else 'at least'} {bound}" + (
        " characters" if length else ""
    )


def encode_entry(entry: StreamEntry) -> bytes:
    """An entry as the value of its directory name."""
    return msgspec.msgpack.encode(entry)


_DECODER: Final = msgspec.msgpack.Decoder(StreamEntry)


def decode_entry(value: bytes) -> StreamEntry | None:
    """The entry that a value of the directory is; None if it is none that this version reads."""
    try:
        return _DECODER.decode(value)
    except (msgspec.MsgspecError, UnicodeDecodeError):
        return None


def inside(region: str, candidates: dict[NodeId, Peer]) -> dict[NodeId, Peer]:
    """The candidates that lie in a region; all where it is "", or has none of them."""
    found = {node: peer for node, peer in candidates.items() if holds(region, peer.region)}
    return found if region and found else candidates


def choose_replicas(
    stream: str, shard: int, count: int, candidates: dict[NodeId, Peer]
) -> tuple[Peer, ...]:
    """`count` of the candidates, or all of them, for a shard: by rendezvous hashing (Thaler and
    Ravishankar, 1998), so that shards spread evenly, and a node that comes or goes changes few."""
    by_weight = sorted(candidates, key=lambda node: key_of(f"{stream}/{shard}/{node}"))
    return tuple(candidates[node] for node in by_weight[:count])
