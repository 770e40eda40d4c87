"""Inputs by chance from inputs that are accepted: bytes changed, cut out, doubled, spliced."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from random import Random

TOKENS = (b"\x00", b"\xff", b"\xff\xff\xff\xff", b"\xcf" + b"\xff" * 8, b"(" * 40, b"[" * 200, b"{")
"""What parsers stumble over: bounds of integers, nesting, a beginning without an end."""


def mutated(seeds: Sequence[bytes], random: Random) -> Iterator[bytes]:
    """Inputs for ever, near one of `seeds`."""
    while True:
        data = bytearray(random.choice(seeds))
        for _ in range(random.randint(1, 6)):
            at = random.randint(0, len(data))
            match random.randrange(6):
                case 0 if data:
                    data[at % len(data)] = random.randrange(256)
                case 1 if data:
                    data[at % len(data)] ^= 1 << random.randrange(8)
                case 2:
                    data[at:at] = random.choice(TOKENS)
                case 3:
                    del data[at : at + random.randint(1, 8)]
                case 4:
                    other = random.choice(seeds)
                    cut = random.randint(0, len(other))
                    data[at:] = other[cut:]
                case _:
                    data[at:at] = data[at : at + random.randint(1, 64)]
        yield bytes(data[: 1 << 16])
