"""Creates the mutations of a frame that the fuzzer uses: flipped bits, lengths, versions and checksums, a cut-off end,
and a wrong declared size.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from struct import Struct

SIZE = Struct(">i")
PREFIX = Struct(">hh")
HEADER_END = 4 + 8
"""The end of the fixed header fields: size, API key, version, correlation id."""

BAD_LENGTHS = (-1, -2, -(2**31), 2**31 - 1, 2**24, 100, 0)
FALSE_SIZES = (-1, -(2**31), 0, 4, 7, 2**31 - 1, 104_857_601, 104_857_600, 50_000)


@dataclass(frozen=True, slots=True)
class Mutant:
    """A mutated frame. With `is_whole` the frame has the size that it declares, so the broker responds or closes the
    connection, and never waits for more bytes.
    """

    data: bytes
    is_whole: bool = True


class Mutator:
    """Creates mutants of the frames of a corpus; the same seed creates the same mutants."""

    def __init__(self, corpus: Sequence[bytes], seed: int) -> None:
        self.corpus = corpus
        self.rng = random.Random(seed)

    def next(self) -> Mutant:
        (mutate,) = self.rng.choices(MUTATIONS, WEIGHTS)
        return mutate(self, bytearray(self.rng.choice(self.corpus)))

    def _position(self, frame: bytearray) -> int:
        """Return a random position after the size field."""
        return self.rng.randrange(4, len(frame))

    def untouched(self, frame: bytearray) -> Mutant:
        return Mutant(bytes(frame))

    def flipped_bits(self, frame: bytearray) -> Mutant:
        for _ in range(self.rng.choice((1, 1, 2, 4, 16))):
            frame[self._position(frame)] ^= 1 << self.rng.randrange(8)
        return Mutant(bytes(frame))

    def flipped_in_body(self, frame: bytearray) -> Mutant:
        """Flip bits after the header's fixed fields, so that the API and version stay the same."""
        if len(frame) > HEADER_END:
            frame[self.rng.randrange(HEADER_END, len(frame))] = self.rng.randrange(256)
        return Mutant(bytes(frame))

    def bad_length(self, frame: bytearray) -> Mutant:
        """Overwrite four bytes, two or one, which are often a length or a count."""
        position = self._position(frame)
        width = self.rng.choice((4, 4, 2, 1))
        value = self.rng.choice(BAD_LENGTHS) & ((1 << 8 * width) - 1)
        frame[position : position + width] = value.to_bytes(width, "big")
        return _resized(frame)

    def truncated(self, frame: bytearray) -> Mutant:
        del frame[self._position(frame) :]
        return _resized(frame)

    def extended(self, frame: bytearray) -> Mutant:
        position = self._position(frame)
        frame[position:position] = self.rng.randbytes(self.rng.randint(1, 40))
        return _resized(frame)

    def shortened(self, frame: bytearray) -> Mutant:
        position = self._position(frame)
        del frame[position : position + self.rng.randint(1, 8)]
        return _resized(frame)

    def spliced(self, frame: bytearray) -> Mutant:
        """Join the head of one request and the tail of another request."""
        other = self.rng.choice(self.corpus)
        frame[self._position(frame) :] = other[self.rng.randrange(4, len(other)) :]
        return _resized(frame)

    def other_api(self, frame: bytearray) -> Mutant:
        key, version = PREFIX.unpack_from(frame, 4)
        if self.rng.random() < 0.5:
            key = self.rng.choice((self.rng.randrange(80), self.rng.randrange(20), -1, 32767))
        else:
            version = self.rng.choice((version + 1, version - 1, 0, -1, 32767, self.rng.randrange(20)))
        PREFIX.pack_into(frame, 4, key, version)
        return Mutant(bytes(frame))

    def noise(self, frame: bytearray) -> Mutant:
        frame[HEADER_END:] = self.rng.randbytes(self.rng.randrange(200))
        return _resized(frame)

    def all_noise(self, frame: bytearray) -> Mutant:
        return Mutant(self.rng.randbytes(self.rng.randint(1, 100)), is_whole=False)

    def false_size(self, frame: bytearray) -> Mutant:
        SIZE.pack_into(frame, 0, self.rng.choice(FALSE_SIZES))
        return Mutant(bytes(frame), is_whole=False)

    def partial(self, frame: bytearray) -> Mutant:
        return Mutant(bytes(frame[: self.rng.randint(1, len(frame) - 1)]), is_whole=False)


def _resized(frame: bytearray) -> Mutant:
    SIZE.pack_into(frame, 0, len(frame) - 4)
    return Mutant(bytes(frame))


Mutation = Callable[[Mutator, bytearray], Mutant]

WEIGHTED: tuple[tuple[Mutation, int], ...] = (
    (Mutator.untouched, 15),
    (Mutator.flipped_bits, 25),
    (Mutator.flipped_in_body, 25),
    (Mutator.bad_length, 15),
    (Mutator.truncated, 5),
    (Mutator.extended, 5),
    (Mutator.shortened, 5),
    (Mutator.spliced, 5),
    (Mutator.other_api, 4),
    (Mutator.noise, 2),
    (Mutator.all_noise, 1),
    (Mutator.false_size, 2),
    (Mutator.partial, 1),
)
MUTATIONS = [mutation for mutation, _ in WEIGHTED]
WEIGHTS = [weight for _, weight in WEIGHTED]
