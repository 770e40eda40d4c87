"""Receipts of committed batches, which a producer can prove later without any node."""

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
    """The nodes that had the chunk on disk when the receipt was issued. No log proves that."""
    fork: str = ""
    """The fork of the shard that took the batch: its own segments prove the receipt, and those of
    the shard after the fork was copied; "": the shard's main log."""

    @property
    def name(self) -> str:
        """The name of the shard (`shard_name`), for a receipt of a fork as well."""
        return shard_name(self.stream, self.shard)

    def refuted_by(self, chunk: Chunk) -> str:
        """Why `chunk`, which has the receipt's number, is not the receipt's chunk; "": it is."""
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
    """The name of a shard: the stream's id and the shard's number. The log begins with a hash of
    this name (`chunk.genesis`)."""
    return f"{stream}/{shard}"


def parse_receipt(text: bytes) -> Receipt:
    """A receipt from its JSON. MalformedReceiptError if it is none."""
    try:
        return msgspec.json.decode(text, type=Receipt)
    except (msgspec.MsgspecError, UnicodeDecodeError) as error:
        raise MalformedReceiptError(str(error)) from None
