"""Work in a background thread: an exception that ends the work early is raised to every waiter."""

import pytest
from tests.support.background import Background

PATIENCE_SECONDS = 60.0


class Counting(Background):
    def __init__(self, fails_at: int | None = None) -> None:
        super().__init__(PATIENCE_SECONDS)
        self.count = 0
        self._fails_at = fails_at

    def _work(self) -> None:
        while not self.is_over:
            with self._progress:
                self.count += 1
                self._progress.notify_all()
            if self.count == self._fails_at:
                raise LookupError("on purpose")


def test_background_work_runs_until_the_end_of_the_with_block() -> None:
    with Counting() as counting:
        counting.until(lambda: counting.count >= 3, "three")
    counted = counting.count
    assert not counting._thread.is_alive()
    assert counted == counting.count >= 3


def test_an_exception_of_background_work_is_raised_to_waiters_and_at_the_end() -> None:
    with pytest.raises(LookupError), Counting(fails_at=2) as counting, pytest.raises(LookupError):
        counting.until(lambda: counting.count >= 3, "three")


def test_results_before_a_failure_of_background_work_count() -> None:
    with pytest.raises(LookupError), Counting(fails_at=2) as counting:
        counting.until(lambda: counting.count >= 2, "two")
