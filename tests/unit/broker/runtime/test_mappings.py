"""Pages of mapped log files that were read do not remain in the process's memory, except for a few chunks."""

from __future__ import annotations

import mmap
from pathlib import Path
from typing import Any

import psutil
import pytest

from oncelog_broker.runtime.disk import RealDisk
from oncelog_broker.runtime.mappings import (
    CHUNK_BITS,
    KEPT_CHUNKS,
    PASSING_CHUNKS,
    RENEWAL_CHUNKS,
    Mappings,
)

CHUNK = 1 << CHUNK_BITS


class Mapping:
    """Replaces a memory mapping; records which chunks are given back to the system."""

    def __init__(self, size: int = 10_000 * CHUNK) -> None:
        self.size = size
        self.given_back: list[tuple[int, int]] = []
        self.is_closed = False

    def __len__(self) -> int:
        return self.size

    def madvise(self, option: int, start: int, length: int) -> None:
        assert option == mmap.MADV_DONTNEED
        if self.is_closed:
            raise ValueError("mmap closed or invalid")
        self.given_back.append((start >> CHUNK_BITS, length))


def read(mappings: Mappings, mapping: Any, *chunks: int) -> None:
    for number in chunks:
        mappings.note_read(mapping, number * CHUNK, CHUNK)


def test_chunks_beyond_those_that_stay_are_given_back_when_later_ones_are_read() -> None:
    mappings, mapping = Mappings(), Mapping()
    read(mappings, mapping, *range(KEPT_CHUNKS + PASSING_CHUNKS))
    assert mapping.given_back == []
    read(mappings, mapping, KEPT_CHUNKS + PASSING_CHUNKS)
    assert [number for number, _ in mapping.given_back] == list(range(KEPT_CHUNKS, KEPT_CHUNKS + PASSING_CHUNKS))


def test_what_stays_may_be_read_again_and_again() -> None:
    mappings, mapping = Mappings(), Mapping()
    for _ in range(5):
        read(mappings, mapping, *range(KEPT_CHUNKS))
    assert mapping.given_back == []


def test_other_chunks_may_stay_after_some_time() -> None:
    mappings, mapping = Mappings(), Mapping()
    read(mappings, mapping, *range(KEPT_CHUNKS))
    for _ in range(RENEWAL_CHUNKS):
        read(mappings, mapping, 1000)
    read(mappings, mapping, 1000, 2000)
    mapping.given_back.clear()
    for _ in range(10):
        read(mappings, mapping, 1000, 2000)
    assert mapping.given_back == [], "they stay now"


def test_a_read_over_several_chunks_counts_each_and_the_last_one_is_given_back_up_to_the_end_of_the_file() -> None:
    mappings, mapping = Mappings(), Mapping(size=KEPT_CHUNKS * CHUNK + 5000)
    mappings.note_read(mapping, 100, KEPT_CHUNKS * CHUNK + 4000)  # type: ignore[arg-type]
    other = Mapping()
    read(mappings, other, *range(PASSING_CHUNKS))
    assert mapping.given_back == [(KEPT_CHUNKS, 5000)]


def test_a_mapping_that_is_gone_or_closed_gives_nothing_back() -> None:
    mappings, closed, gone = Mappings(), Mapping(), Mapping()
    read(mappings, Mapping(), *range(KEPT_CHUNKS))
    read(mappings, closed, 0)
    read(mappings, gone, 0)
    closed.is_closed = True
    del gone
    other = Mapping()
    read(mappings, other, 0)
    assert other.given_back == []


@pytest.mark.skipif(not hasattr(mmap, "MADV_DONTNEED"), reason="the system cannot take pages back")
def test_memory_does_not_grow_with_what_is_read_of_a_file(tmp_path: Path) -> None:
    size = 4 * KEPT_CHUNKS * CHUNK
    path = tmp_path / "log"
    path.write_bytes(bytes(size))
    file, process = RealDisk().open(str(path)), psutil.Process()
    before = process.memory_info().rss
    for position in range(0, size, CHUNK):
        view = file.read(position, CHUNK)
        assert not any(view[::4096])
    grown = process.memory_info().rss - before
    file.close()
    assert grown < (KEPT_CHUNKS + PASSING_CHUNKS + 4) * CHUNK
