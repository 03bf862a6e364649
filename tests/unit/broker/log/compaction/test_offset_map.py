import sys

import pytest

from oncelog_broker.log.compaction.offset_map import DIGEST_SIZE, ENTRY_BYTES, NO_OFFSET, OffsetMap, fingerprint


@pytest.mark.parametrize("size", [0, 1, DIGEST_SIZE - 1, DIGEST_SIZE, DIGEST_SIZE + 1, 5000])
def test_the_map_has_the_last_offset_of_a_key(size):
    known = OffsetMap(1 << 20)
    assert known.put_all([b"k" * size, b"other", b"k" * size], [3, 4, 9]) == 3
    assert (known.get(b"k" * size), known.get(b"other"), known.get(b"unknown")) == (9, 4, NO_OFFSET)
    assert len(known) == 2


def test_a_key_that_looks_like_the_digest_of_another_is_not_taken_for_it():
    known = OffsetMap(1 << 20)
    long = b"a long key, a very long key"
    known.put_all([long, fingerprint(long)], [1, 2])
    assert (known.get(long), known.get(fingerprint(long))) == (1, 2)


def test_no_key_is_skipped():
    known = OffsetMap(1 << 20)
    assert known.put_all([None, b"a", None], [1, 2, 3]) == 3
    assert len(known) == 1


def test_the_map_is_full_by_keys_and_not_by_records():
    known = OffsetMap(3 * ENTRY_BYTES)
    keys = [b"a", b"b", b"a", None, b"c", b"a", b"b", b"d", b"a"]
    assert known.put_all(keys, range(9)) == 7
    assert {key: known.get(key) for key in (b"a", b"b", b"c", b"d")} == {b"a": 5, b"b": 6, b"c": 4, b"d": NO_OFFSET}
    assert known.put_all([b"c", b"e"], [9, 10]) == 1
    assert known.get(b"c") == 9


def test_there_is_room_for_one_key_at_least():
    assert OffsetMap(0).put_all([b"a", b"b"], [0, 1]) == 1


def test_the_map_lists_the_last_offset_of_each_key():
    known = OffsetMap(1 << 20)
    known.put_all([b"%d" % (n % 500) for n in range(1000)], range(1000))
    assert sorted(offset for some in known.offsets() for offset in some) == list(range(500, 1000))


@pytest.mark.parametrize("count", [2_000, 9_000, 20_000])
def test_an_entry_takes_no_more_than_is_reckoned(count):
    known = OffsetMap(count * ENTRY_BYTES)
    known.put_all([b"a key of many bytes, number %d" % n for n in range(count)], range(10**12, 10**12 + count))
    assert len(known) == count
    taken = sum(
        sys.getsizeof(shard) + sum(-(-sys.getsizeof(key) // 16) * 16 + 32 for key in shard) for shard in known._shards
    )
    assert taken <= count * ENTRY_BYTES
