import itertools

from oncelog_broker.runtime.entropy import random_below, random_uuid


def test_a_random_uuid_is_of_version_4_and_none_that_kafka_would_not_issue():
    drawn = iter([b"\xf8" + bytes(15), b"\xff" * 16])  # the first draw would begin with '-'
    uuid = random_uuid(lambda n: next(drawn)[:n])
    assert uuid == b"\xff" * 6 + b"\x4f\xff\xbf" + b"\xff" * 7


def test_random_uuids_differ():
    assert len({random_uuid() for _ in range(100)}) == 100


def test_random_below_stays_below():
    counter = itertools.count()
    drawn = [random_below(3, lambda n: next(counter).to_bytes(n, "big")) for _ in range(6)]
    assert drawn == [0, 1, 2, 0, 1, 2]
