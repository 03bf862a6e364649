import random

from oncelog.backoff import backoff_s


def test_the_backoff_doubles_up_to_the_maximum_within_the_jitter() -> None:
    rng = random.Random(1)
    assert backoff_s(0, 100, 1000, rng) == 0
    for failures, expected in ((1, 0.1), (2, 0.2), (4, 0.8), (5, 1.0), (10_000, 1.0)):
        assert expected * 0.8 <= backoff_s(failures, 100, 1000, rng) <= expected * 1.2
