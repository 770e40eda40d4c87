"""A stream's entry in the directory: one value in the log of the cluster that owns its name."""

from __future__ import annotations

import re
from typing import Annotated, Final, Literal

import msgspec
from msgspec.structs import replace

from matching import SelectorError, compile_selector
from overlay.chord.keys import key_of
from overlay.command_faults import SELECTOR_MOST, STREAM_NAME_MOST, fault_in_stream_name
from overlay.machine import Duration, Key, NodeId, Peer
from overlay.regions import holds
from streams.log.names import shard_name
from streams.log.writers import ANYBODY, Names, fault_in_writers

SHARDS_MOST: Final = 64
"""The limit of shards of a stream. Guess; the owner's heartbeats name each shard, and a stream that
needs more is better divided into two."""

REPLICAS_MOST: Final = 7
"""The limit of replicas of a shard: three nodes may fail together."""

ATTRIBUTE_MOST: Final = 256
"""The limit of characters of an attribute's name in a stream's options."""

DROP_OLDEST: Final = "drop-oldest"

AVAILABILITY: Final = "availability"

PREFIX: Final = "stream:"
"""Before a stream's name in the directory."""


SOURCES_MOST: Final = 64
"""The limit of streams that one stream copies. Guess."""


class StreamSource(msgspec.Struct, frozen=True, array_like=True):
    """A copied stream: its rows that match the selector `where`, "": all rows."""

    stream: Annotated[str, msgspec.Meta(max_length=STREAM_NAME_MOST)]
    where: Annotated[str, msgspec.Meta(max_length=SELECTOR_MOST)] = ""


class StreamOptions(msgspec.Struct, frozen=True, omit_defaults=True, forbid_unknown_fields=True):
    """The options of a stream."""

    shards: Annotated[int, msgspec.Meta(ge=1, le=SHARDS_MOST)] = 1
    by: Annotated[str, msgspec.Meta(max_length=ATTRIBUTE_MOST)] = ""
    """The attribute whose value chooses an event's shard; "": there is one shard only."""
    replicas: Annotated[int, msgspec.Meta(ge=1, le=REPLICAS_MOST)] = 3
    """Replicas of each shard; fewer while the overlay has fewer nodes."""
    keep_seconds: Duration = 0.0
    """The least seconds for which rows are kept; 0: as long as `keep_bytes` allows."""
    keep_bytes: Annotated[int, msgspec.Meta(ge=0, le=1 << 62)] = 0
    """Bytes of a shard's log that are kept; 0: no limit."""
    capture: Annotated[str, msgspec.Meta(max_length=SELECTOR_MOST)] = ""
    """The selector of published events that the stream takes in; "": none."""
    sources: Annotated[tuple[StreamSource, ...], msgspec.Meta(max_length=SOURCES_MOST)] = ()
    """Streams whose rows it takes in."""
    mirror: Annotated[str, msgspec.Meta(max_length=STREAM_NAME_MOST)] = ""
    """The stream whose rows it copies, with their offsets; "": none."""
    region: Annotated[str, msgspec.Meta(max_length=64)] = ""
    """The region of its replicas; "": any."""
    drop_unread: bool = False
    """Whether `keep_seconds` and `keep_bytes` also remove rows that durable consumers have not
    read."""
    expire_consumers: Duration = 0.0
    """Seconds of silence after which a durable consumer expires; 0: never."""
    max_bytes: Annotated[int, msgspec.Meta(ge=0, le=1 << 62)] = 0
    max_rows: Annotated[int, msgspec.Meta(ge=0, le=1 << 53)] = 0
    """The limits of each shard in bytes and rows; 0: no limit."""
    when_full: Literal["refuse", "drop-oldest"] = "refuse"
    """Whether a full shard refuses new rows, or removes its oldest ones."""
    key: Annotated[str, msgspec.Meta(max_length=ATTRIBUTE_MOST)] = ""
    """The attribute whose newest row of each value is kept, however old; "": none."""
    deletes: Annotated[str, msgspec.Meta(max_length=SELECTOR_MOST)] = ""
    """The selector of rows that delete their key; "": rows with the key as their only attribute
    beside `id` and `type`, and without a payload."""
    ttl_seconds: Duration = 0.0
    """Seconds of a row's lifetime after its append; 0: no end."""
    ttl_by: Annotated[str, msgspec.Meta(max_length=ATTRIBUTE_MOST)] = ""
    """The attribute with the seconds of a row that has a lifetime of its own; "": none."""
    prefer: Literal["consistency", "availability"] = "consistency"
    """Whether replicas without a majority refuse rows, or take them into a fork
    (streams/services/fork/)."""
    writers: Names = ()
    """The producers that may append (streams/log/writers.py): producer:NAME, node:ID, tenant:NAME;
    (), or *: anybody."""


class ShardPlace(msgspec.Struct, frozen=True, array_like=True):
    """The replicas of a shard, by the last reports to its owner. `is_founded`: the shard has had a
    leader, so that its log decides about its replicas, and this is a hint."""

    replicas: tuple[Peer, ...]
    is_founded: bool = False


class StreamEntry(msgspec.Struct, frozen=True, array_like=True):
    """A stream. `id` is drawn at its founding: a later stream of the same name has another id.
    `removed`: the entry is a tombstone, for which nodes destroy the stream's shards."""

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
        """The entry with another place of one shard."""
        places = list(self.places)
        places[number] = place
        return replace(self, places=tuple(places))


def directory_name(stream: str) -> str:
    """The name under which the directory has a stream."""
    return PREFIX + stream


def stream_key(stream: str) -> Key:
    """The ring key whose owner has the stream's entry."""
    return key_of(directory_name(stream))


def fault_in_options(options: StreamOptions) -> str:
    """Return why these options contradict each other; "" if they do not."""
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
    """Return why no owner can have founded this stream; "" if one can."""
    if len(entry.places) != entry.options.shards:
        return "a stream has a place for each of its shards"
    return fault_in_stream_name(entry.name) or fault_in_options(entry.options)


_SPOKEN: Final = {
    "keep_seconds": "keep-for",
    "keep_bytes": "keep-size",
    "sources": "source",
    "writers": "writer",
    "ttl_seconds": "ttl",
}
"""Names of options on the command line, where they differ."""


def differing(known: StreamOptions, asked: StreamOptions) -> str:
    """The options, as on the command line, in which two foundings differ; "": none."""
    return ", ".join(
        "--" + _SPOKEN.get(name, name.replace("_", "-"))
        for name in known.__struct_fields__
        if getattr(known, name) != getattr(asked, name)
    )


_OUTSIDE: Final = re.compile(r"Expected `\w+` (of length )?([<>])= (-?[\d.]+) - at `\$\.(\w+)")


def unfit(error: msgspec.ValidationError) -> str:
    """Return why options are invalid, with their names on the command line."""
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
    """The entry in a value of the directory; None if this version cannot read it."""
    try:
        return _DECODER.decode(value)
    except (msgspec.MsgspecError, UnicodeDecodeError):
        return None


def inside(region: str, candidates: dict[NodeId, Peer]) -> dict[NodeId, Peer]:
    """The candidates in a region; all of them if it is "" or has none."""
    found = {node: peer for node, peer in candidates.items() if holds(region, peer.region)}
    return found if region and found else candidates


def choose_replicas(
    stream: str, shard: int, count: int, candidates: dict[NodeId, Peer]
) -> tuple[Peer, ...]:
    """`count` of the candidates, or all of them, for a shard: by rendezvous hashing (Thaler and
    Ravishankar, 1998), so that shards spread evenly, and a node that joins or leaves changes
    few."""
    by_weight = sorted(candidates, key=lambda node: key_of(f"{stream}/{shard}/{node}"))
    return tuple(candidates[node] for node in by_weight[:count])
