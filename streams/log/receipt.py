"""What a producer gets for a batch that is committed, and can prove later without any node."""

from __future__ import annotations

import msgspec

from streams.log.chunk import Chunk


class MalformedReceiptError(Exception):
    """A text that is no receipt."""


class Receipt(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A committed batch: the offsets `first` to `first + count - 1` of a shard, in the chunk with
    this number, epoch and hash (SHA-256, hexadecimal)."""

    stream: str
    shard: int
    epoch: int
    first: int
    count: int
    chunk: int
    hash: str
    replicas: tuple[str, ...] = ()
    """The nodes that had it on disk when the receipt was given. No log proves that."""
    fork: str = ""
    """The log is this fork of the shard, which its own segments prove, and those of the shard when
    it was copied; "": the shard's main log."""

    @property
    def name(self) -> str:
        """The name of its shard (`shard_name`), also where it is of a fork."""
        return shard_name(self.stream, self.shard)

    def refuted_by(self, chunk: Chunk) -> str:
        """Why `chunk`, which has the receipt's number, is not the one that it names; "": it is."""
        if chunk.hash.hex() != self.hash:
            return f"chunk {chunk.number} has the hash {chunk.hash.hex()}, not {self.hash}"
        if chunk.epoch != self.epoch:
            return f"chunk {chunk.number} is of epoch {chunk.epoch}, not {self.epoch}"
        last = self.first + self.count
        if self.count < 1 or self.first < chunk.first or last > chunk.next_offset:
            return (
                f"chunk {chunk.number} has the offsets {chunk.first} to {chunk.next_offset - 1}, "
                f"not {self.first} to {last - 1}"
            )
        return ""


def shard_name(stream: str, shard: int) -> str:
    """The name of a shard: the stream's id and the shard's number. Its log begins with the hash of
    it (`chunk.genesis`)."""
    return f"{stream}/{shard}"


def parse_receipt(text: bytes) -> Receipt:
    """A receipt from its JSON. MalformedReceiptError if it is none."""
    try:
        return msgspec.json.decode(text, type=Receipt)
    except (msgspec.MsgspecError, UnicodeDecodeError) as error:
        raise MalformedReceiptError(str(error)) from None
