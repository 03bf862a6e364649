"""The per-producer audit accepts every correct log, however the log is divided into ranges, and finds each kind of
fault at any position.

The tests generate logs as brokers accept them: epochs rise, transactions are of both versions, batches have any size,
and sequence numbers wrap to 0 after 2147483647. Each test puts one fault into a generated log.
"""

from __future__ import annotations

from collections import Counter
from itertools import pairwise
from random import Random

from hypothesis import given
from hypothesis import strategies as st

from oncelog_pipeline.jobs.audit.chains import (
    NO_PRODUCER,
    NO_SEQUENCE,
    SEQUENCES,
    Chain,
    Chains,
    Finding,
    Header,
    Kind,
    judged,
)

SEED = st.integers(0, 2**32)
TYPES = 4
"""The number of kinds of producers that `Writer` distinguishes."""


class Writer:
    """A producer that writes to one partition.

    `kind` is 0 for a producer without sequence numbers, 1 for an idempotent one, 2 for transactions V1, and 3 for
    transactions V2.
    """

    def __init__(self, producer_id: int, kind: int, rng: Random) -> None:
        self.producer_id = producer_id
        self.kind = kind
        self.epoch = 0
        self.sequence = 0
        self._rng = rng

    def batch(self, offset: int) -> Header:
        size = self._rng.choice((1, 2, 7))
        if self.kind == 0:
            return Header(offset, offset + size - 1, NO_PRODUCER, -1, -1, False)
        made = Header(offset, offset + size - 1, self.producer_id, self.epoch, self.sequence, False)
        self.sequence = (self.sequence + size) % SEQUENCES
        return made

    def renewed(self) -> None:
        self.epoch += 1
        self.sequence = 0

    def marker(self, offset: int) -> Header:
        if self.kind == 3:
            self.renewed()  # in transactions V2 the marker has the next epoch
        return Header(offset, offset, self.producer_id, self.epoch, NO_SEQUENCE, True)


def log(rng: Random, *, least_kind: int = 0) -> list[Header]:
    """Generate a partition's log of several producers, each with some batches that a test can remove."""
    writers = [Writer(index + 1, rng.randrange(least_kind, TYPES), rng) for index in range(rng.randint(1, 4))]
    for writer in writers:
        if writer.kind in (1, 2) and rng.random() < 0.2:
            writer.epoch = rng.randint(0, 3)
    headers: list[Header] = []
    for _ in range(rng.randint(5, 60)):
        writer = rng.choice(writers)
        offset = headers[-1].last_offset + 1 if headers else 0
        chance = rng.random()
        if chance < 0.15 and writer.kind >= 2:
            headers.append(writer.marker(offset))
        elif chance < 0.2 and writer.kind:
            writer.renewed()
        else:
            headers.append(writer.batch(offset))
    return headers


def chains_of(headers: list[Header], cuts: list[int]) -> list[Chain]:
    bounds = [0, *sorted(cuts), len(headers)]
    found: list[Chain] = []
    for low, high in pairwise(bounds):
        part = Chains()
        for header in headers[low:high]:
            part.add(header)
        found += part.close()
    return found


def findings(
    headers: list[Header], cuts: list[int], *, is_whole: bool = True, is_compacted: bool = False
) -> list[Finding]:
    by_producer: dict[int, list[Chain]] = {}
    for chain in chains_of(headers, cuts):
        by_producer.setdefault(chain.producer_id, []).append(chain)
    found = []
    for chains in by_producer.values():
        chains.sort(key=lambda chain: chain.first_offset)
        found += judged(chains, is_whole=is_whole, is_compacted=is_compacted)
    return found


def some_cuts(rng: Random, headers: list[Header]) -> list[int]:
    return [rng.randint(0, len(headers)) for _ in range(rng.randint(0, 5))]


def as_if_written_so(headers: list[Header]) -> list[Header]:
    """Renumber the offsets consecutively, so that only the seeded fault is visible."""
    offset, found = 0, []
    for header in headers:
        found.append(header._replace(first_offset=offset, last_offset=offset + header.size - 1))
        offset += header.size
    return found


def counted(found: list[Finding]) -> Counter[Kind]:
    counts: Counter[Kind] = Counter()
    for finding in found:
        counts[finding.kind] += finding.records
    return counts


def data_of(headers: list[Header], producer_id: int) -> list[int]:
    """Return the positions of this producer's data batches in `headers`."""
    return [at for at, header in enumerate(headers) if header.producer_id == producer_id and not header.is_control]


@given(SEED)
def test_a_right_log_is_right_however_it_is_cut(seed: int) -> None:
    rng = Random(seed)
    headers = log(rng)
    assert findings(headers, some_cuts(rng, headers)) == []
    # Retention may have deleted the beginning of the log, also within a transaction.
    rest = headers[rng.randrange(len(headers)) :]
    assert findings(rest, some_cuts(rng, rest), is_whole=False) == []


@given(SEED)
def test_a_correct_log_needs_little_memory(seed: int) -> None:
    headers = log(Random(seed))
    producers = {header.producer_id for header in headers} | {NO_PRODUCER}
    assert len(chains_of(headers, [])) == len(producers)


@given(SEED)
def test_lost_batches_and_holes_are_found(seed: int) -> None:
    rng = Random(seed)
    headers = log(rng, least_kind=1)
    mine = data_of(headers, rng.choice(headers).producer_id)
    with_next = [at for at, later in pairwise(mine) if headers[later].epoch == headers[at].epoch]
    if not with_next:
        return
    lost = rng.choice(with_next)
    rest = headers[:lost] + headers[lost + 1 :]
    cuts = some_cuts(rng, rest)
    size = headers[lost].size
    assert counted(findings(as_if_written_so(rest), cuts)) == {Kind.GAP: size}
    assert counted(findings(rest, cuts)) == {Kind.GAP: size, Kind.HOLE: size}
    assert findings(rest, cuts, is_compacted=True) == []


@given(SEED)
def test_records_that_are_there_again_are_found_and_counted(seed: int) -> None:
    rng = Random(seed)
    headers = log(rng, least_kind=1)
    mine = data_of(headers, rng.choice(headers).producer_id)
    if not mine:
        return
    twice = rng.choice(mine)
    epoch = headers[twice].epoch
    rest_of_epoch = [
        at
        for at in range(twice + 1, len(headers))
        if headers[at].producer_id == headers[twice].producer_id and headers[at].epoch == epoch
    ]
    again = 1 + rng.choice([twice, *rest_of_epoch])  # directly after the original, or later in the same epoch
    faulty = as_if_written_so([*headers[:again], headers[twice], *headers[again:]])
    assert counted(findings(faulty, some_cuts(rng, faulty))) == {Kind.TWICE: headers[twice].size}
    assert counted(findings(faulty, [], is_compacted=True)) == {Kind.TWICE: headers[twice].size}


@given(SEED)
def test_a_zombie_is_found(seed: int) -> None:
    rng = Random(seed)
    headers = log(rng, least_kind=1)
    last = headers[-1]
    zombie = last._replace(epoch=last.epoch, sequence=rng.randrange(5), is_control=False)
    faulty = as_if_written_so([*headers, last._replace(epoch=last.epoch + 1, sequence=0, is_control=False), zombie])
    assert counted(findings(faulty, some_cuts(rng, faulty))) == {Kind.ZOMBIE: zombie.size}


@given(SEED)
def test_the_first_records_may_be_missing_only_where_the_log_begins_later(seed: int) -> None:
    rng = Random(seed)
    headers = [header for header in log(rng, least_kind=1) if header.producer_id == 1 and not header.is_control]
    if len(headers) < 2 or headers[1].epoch != headers[0].epoch:
        return
    rest = as_if_written_so(headers[1:])
    assert counted(findings(rest, [])) == {Kind.GAP: headers[0].size}
    assert findings(rest, [], is_whole=False) == []


def test_numbers_begin_again_at_zero() -> None:
    near_the_end = Header(0, 9, 1, 0, SEQUENCES - 5, False)
    after = Header(10, 11, 1, 0, 5, False)
    assert findings([near_the_end, after], [1], is_whole=False) == []
    late = after._replace(sequence=7)
    assert counted(findings([near_the_end, late], [1], is_whole=False)) == {Kind.GAP: 2}
    early = after._replace(sequence=SEQUENCES - 5)
    assert counted(findings([near_the_end, early], [1], is_whole=False)) == {Kind.TWICE: 2}


def test_records_without_sequence_are_counted() -> None:
    headers = [Header(0, 4, NO_PRODUCER, -1, -1, False), Header(5, 5, 1, 0, 0, False), Header(6, 6, 1, 0, -1, True)]
    of_log = next(chain for chain in chains_of(headers, []) if chain.producer_id == NO_PRODUCER)
    assert (of_log.records, of_log.numbered) == (6, 1)
