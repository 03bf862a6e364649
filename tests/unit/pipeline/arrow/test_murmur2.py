"""Keys that are hashed in bulk have the same hashes as in Java's client and in the oncelog client."""

from __future__ import annotations

import pytest

pytest.importorskip("pyarrow")

import pyarrow as pa
from hypothesis import given
from hypothesis import strategies as st
from tests.support.examples import examples

from oncelog.producer.partitioner import murmur2, partition_for_key
from oncelog_pipeline.arrow.murmur2 import LONGEST, hashes, partitions_of_keys

# Signed hashes from Kafka's own tests (UtilsTest.testMurmur2).
JAVA_HASHES = {
    "21": -973932308,
    "foobar": -790332482,
    "a-little-bit-long-string": -985981536,
    "a-little-bit-longer-string": -1486304829,
    "lkjh234lh9fiuh90y23oiuhsafujhadof229phr9h19h89h8": -58897971,
    "abc": 479470107,
}
KEY = st.binary(max_size=12) | st.integers(LONGEST - 5, LONGEST + 9).map(lambda size: bytes(range(251))[:size])


def test_murmur2_matches_javas_vectors() -> None:
    keys = pa.array([text.encode() for text in JAVA_HASHES], pa.binary())
    assert hashes(keys).tolist() == [each & 0xFFFFFFFF for each in JAVA_HASHES.values()]


@given(st.lists(st.none() | KEY, max_size=20), st.integers(0, 3), st.booleans())
@examples(300)
def test_each_key_has_the_hash_that_the_client_gives_it(keys: list[bytes | None], skipped: int, is_large: bool) -> None:
    column = pa.array([b"skipped"] * skipped + keys, pa.large_binary() if is_large else pa.binary())[skipped:]
    found = hashes(column).tolist()
    assert len(found) == len(keys)
    assert [each for each, key in zip(found, keys, strict=True) if key is not None] == [
        murmur2(key) for key in keys if key is not None
    ]


@pytest.mark.parametrize("count", [1, 2, 3, 16, 1000])
def test_partitions_are_those_that_the_client_chooses(count: int) -> None:
    keys = [b"%d" % number for number in range(2000)]
    found = partitions_of_keys(pa.array(keys, pa.binary()), count)
    assert found.tolist() == [partition_for_key(key, count) for key in keys]


def test_keys_of_a_large_alphabet_and_every_length_are_hashed() -> None:
    keys = [bytes(255 - (7 * place + size) % 256 for place in range(size)) for size in range(2 * LONGEST)]
    assert hashes(pa.array(keys, pa.binary())).tolist() == list(map(murmur2, keys))
