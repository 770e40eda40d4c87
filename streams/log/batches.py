"""Batches of rows: the content of a chunk of kind Events behind its zone map.

A batch is atomic (T1): all of its rows are in one chunk, so that they are written, committed and
read together. The heads of all batches come first and the rows behind them, so that the state of
producers is folded without decoding a row.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Final

import msgspec

from matching import Value
from streams.log.chunk import EVENTS, HEAD, Chunk


class Row(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """One event of a stream: its attributes, and an opaque payload."""

    attributes: dict[str, Value | None]
    payload: bytes = b""
    payload_type: str = ""


class BatchHead(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """The producer of a batch and its numbers: `count` rows from the producer's `sequence` on.
    `session` distinguishes the starts of one producer. An empty producer has no numbers.
    `transaction`: the half that this batch commits, which the chunk `session` prepared; its rows
    have no numbers. `fork`: the fork of the shard from which the batch was copied; `at`: the offset
    of its first row there."""

    producer: str
    session: int
    sequence: int
    count: int
    transaction: str = ""
    fork: str = ""
    at: int = 0


class MalformedChunkError(Exception):
    """A chunk's rows do not decode as its kind, though its CRC is right: its writer has a fault."""


_ENCODER: Final = msgspec.msgpack.Encoder()
_HEADS: Final = msgspec.msgpack.Decoder(tuple[BatchHead, ...])
_ROWS: Final = msgspec.msgpack.Decoder(tuple[Row, ...])
_LOOSE: Final = msgspec.msgpack.Decoder(tuple[msgspec.Raw, ...])
_LENGTH: Final = 4  # bytes before the heads
_ARRAY: Final = b"\xdd"  # MessagePack's array 32: this byte, 4 bytes of length, the items


def encode_rows(rows: Iterable[Row]) -> bytes:
    """Rows one behind the other, as producers send them and as the log has them."""
    return b"".join(map(_ENCODER.encode, rows))


def lacks_key(key: str, rows: Iterable[Mapping[str, Value | None]]) -> str:
    """Return why rows with these attributes do not fit a stream with the key `key`; "" if they
    do."""
    for place, attributes in enumerate(rows):
        if attributes.get(key) is None:
            return f"event {place} of the batch lacks {key}, which is the stream's --key"
    return ""


def decode_rows(encoded: bytes, count: int) -> tuple[Row, ...]:
    """`count` rows that were encoded by `encode_rows`. ValueError if they are not that."""
    if count > len(encoded):  # before room is made for so many
        raise ValueError(f"{len(encoded)} bytes are not {count} rows")
    try:
        rows = _ROWS.decode(_ARRAY + count.to_bytes(4, "big") + encoded)
    except (msgspec.MsgspecError, UnicodeDecodeError, OverflowError) as error:
        raise ValueError(str(error)) from None
    return rows


def are_rows(encoded: bytes, count: int) -> bool:
    """Whether these are `count` consecutive MessagePack values, as `encode_rows` writes rows; the
    rows are not decoded."""
    if count > len(encoded):
        return False
    try:
        _LOOSE.decode(_ARRAY + count.to_bytes(4, "big") + encoded)
    except msgspec.MsgspecError:
        return False
    return True


def join_batches(heads: Sequence[BatchHead], rows: Sequence[bytes]) -> bytes:
    """The rows of a chunk with batches that have these heads, and these rows (`encode_rows`)."""
    encoded = _ENCODER.encode(heads)
    count = sum([head.count for head in heads])
    length = len(encoded).to_bytes(_LENGTH, "big")
    return b"".join((length, encoded, _ARRAY, count.to_bytes(4, "big"), *rows))


def heads_of(chunk: Chunk) -> tuple[BatchHead, ...]:
    """The heads of the batches of an Events chunk. MalformedChunkError if they do not add up."""
    assert chunk.kind == EVENTS
    data, start = chunk.data, HEAD.size + chunk.zones_length + _LENGTH
    end = start + int.from_bytes(data[start - _LENGTH : start], "big")
    try:
        heads = _HEADS.decode(data[start:end])
    except (msgspec.MsgspecError, UnicodeDecodeError) as error:
        raise MalformedChunkError(f"chunk {chunk.number}: {error}") from None
    rows = 0
    for head in heads:
        rows += head.count if head.count > 0 else chunk.offsets + 1
    if rows != chunk.offsets:
        raise MalformedChunkError(
            f"chunk {chunk.number}: its batches have not {chunk.offsets} rows"
        )
    return heads


def _array_of(chunk: Chunk) -> bytes:
    """The rows of an Events chunk as one MessagePack array. MalformedChunkError if the heads of its
    batches do not add up."""
    heads_of(chunk)
    body = chunk.rows
    return body[_LENGTH + int.from_bytes(body[:_LENGTH], "big") :]


def rows_of(chunk: Chunk) -> tuple[Row, ...]:
    """All rows of an Events chunk; the first has the offset `chunk.first`. MalformedChunkError if
    their number is not that of the head."""
    encoded = _array_of(chunk)
    try:
        rows = _ROWS.decode(encoded)
    except (msgspec.MsgspecError, UnicodeDecodeError) as error:
        raise MalformedChunkError(f"chunk {chunk.number}: {error}") from None
    if len(rows) != chunk.offsets:
        raise MalformedChunkError(f"chunk {chunk.number}: {len(rows)} rows, not {chunk.offsets}")
    return rows


def loose_rows_of(chunk: Chunk) -> tuple[msgspec.Raw, ...]:
    """The encoded rows of an Events chunk, one by one. They are views, which keep the chunk in
    memory. MalformedChunkError if their number is not that of the head."""
    encoded = _array_of(chunk)
    try:
        rows = _LOOSE.decode(encoded)
    except msgspec.MsgspecError as error:
        raise MalformedChunkError(f"chunk {chunk.number}: {error}") from None
    if len(rows) != chunk.offsets:
        raise MalformedChunkError(f"chunk {chunk.number}: {len(rows)} rows, not {chunk.offsets}")
    return rows


def encoded_rows_of(chunk: Chunk) -> bytes:
    """The rows of an Events chunk as `encode_rows` makes them, without looking at them."""
    return _array_of(chunk)[len(_ARRAY) + 4 :]
