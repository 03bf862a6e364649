import itertools
import random
from collections import Counter

import pytest

from oncelog.producer.partitioner import MAX_COMPARED, StickyPartition, murmur2, partition_for_key, positive_hash

# Signed values of Java's Utils.murmur2 for these strings, taken from Kafka's tests.
JAVA_HASHES = {
    "21": -973932308,
    "foobar": -790332482,
    "a-little-bit-long-string": -985981536,
    "a-little-bit-longer-string": -1486304829,
    "lkjh234lh9fiuh90y23oiuhsafujhadof229phr9h19h89h8": -58897971,
    "abc": 479470107,
}


@pytest.mark.parametrize(("text", "expected"), JAVA_HASHES.items())
def test_murmur2_equals_javas(text: str, expected: int) -> None:
    assert murmur2(text.encode()) == expected & 0xFFFFFFFF


def test_the_sign_is_masked_off_not_negated() -> None:
    assert positive_hash(b"21") == -973932308 & 0x7FFFFFFF
    assert partition_for_key(b"21", 7) == (-973932308 & 0x7FFFFFFF) % 7


@pytest.mark.parametrize("size", range(8))
def test_keys_of_every_tail_length_are_hashed(size: int) -> None:
    assert 0 <= murmur2(bytes(range(250, 250 - size, -1))) <= 0xFFFFFFFF


def test_any_kind_of_bytes_is_the_same_key() -> None:
    assert (
        partition_for_key(bytearray(b"key"), 5)
        == partition_for_key(memoryview(b"key"), 5)
        == partition_for_key(b"key", 5)
    )
    with pytest.raises(TypeError, match="a key must be bytes"):
        partition_for_key("key", 5)  # type: ignore[arg-type]


def test_a_full_batch_moves_on_to_another_partition() -> None:
    sticky = StickyPartition(1000, [0, 1, 2], random.Random(1))
    seen = []
    for _ in range(50):
        seen.append(sticky.current)
        sticky.batch_ended(1000)
    assert set(seen) == {0, 1, 2}
    assert all(before != after for before, after in itertools.pairwise(seen))


def test_batches_that_left_early_move_on_by_their_bytes() -> None:
    sticky = StickyPartition(1000, [0, 1, 2], random.Random(1))
    first = sticky.current
    sticky.batch_ended(400)
    sticky.batch_ended(500)
    assert sticky.current == first
    sticky.batch_ended(100)
    assert sticky.current != first


def test_a_partition_without_leader_is_left() -> None:
    sticky = StickyPartition(1000, [0, 1, 2], random.Random(1))
    rest = [partition for partition in (0, 1, 2) if partition != sticky.current]
    sticky.update(rest)
    assert sticky.current in rest


def test_a_single_partition_is_always_chosen() -> None:
    sticky = StickyPartition(10, [4], random.Random(1))
    sticky.batch_ended(100)
    assert sticky.current == 4


def drawn(load: dict[int, int | None], count: int = 3000) -> Counter[int]:
    sticky = StickyPartition(10, list(load), random.Random(1), load.get)
    seen: Counter[int] = Counter()
    for _ in range(count):
        sticky.check_leader()
        seen[sticky.current] += 1
        sticky.batch_ended(10)
    return seen


def test_e54_a_partition_is_drawn_the_less_the_more_waits_for_it() -> None:
    """The weight of a partition is the longest queue plus one, minus the partition's own queue (KIP-794)."""
    seen = drawn({0: 0, 1: 4, 2: 9})
    assert seen[0] > 1.4 * seen[1] > 4 * seen[2] > 0


def test_e54_a_partition_whose_leader_hangs_is_not_drawn() -> None:
    assert set(drawn({0: 0, 1: None, 2: 30})) == {0, 2}
    assert set(drawn({0: 5, 1: None})) == {0}
    assert set(drawn({0: None, 1: None, 2: None})) == {0, 1, 2}  # no other partition exists


def test_e54_a_partition_is_left_as_soon_as_its_leader_hangs() -> None:
    load: dict[int, int | None] = {0: 0, 1: 0}
    sticky = StickyPartition(1000, [0, 1], random.Random(1), load.get)
    load[sticky.current] = None
    hung = sticky.current
    sticky.check_leader()
    assert sticky.current != hung


def test_e54_only_some_of_many_partitions_are_compared() -> None:
    load: dict[int, int | None] = dict.fromkeys(range(1000), 0)
    asked: Counter[int] = Counter()

    def count(partition: int) -> int | None:
        asked[partition] += 1
        return load[partition]

    sticky = StickyPartition(10, range(1000), random.Random(1), count)
    sticky.batch_ended(10)
    assert asked.total() == MAX_COMPARED
    for _ in range(2000):
        sticky.batch_ended(10)
    assert len(asked) == 1000
