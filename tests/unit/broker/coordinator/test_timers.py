"""TimerQueue behaves like a plain dict of deadlines."""

from hypothesis import given
from hypothesis import strategies as st

from oncelog_broker.coordinator.timers import TimerQueue

KEYS = st.integers(0, 5)
TIMES = st.integers(0, 30).map(float)
STEPS = st.one_of(
    st.tuples(st.just("set"), KEYS, TIMES),
    st.tuples(st.just("cancel"), KEYS, TIMES),
    st.tuples(st.just("pop"), KEYS, TIMES),
)


@given(st.lists(STEPS, max_size=60))
def test_a_queue_is_a_dict_of_deadlines(steps):
    queue: TimerQueue[int] = TimerQueue()
    deadlines: dict[int, float] = {}
    for what, key, time in steps:
        if what == "set":
            before = min(deadlines.values(), default=None)
            is_sooner = queue.set(key, time)
            deadlines[key] = time
            if before is None or time < before:
                assert is_sooner
        elif what == "cancel":
            queue.cancel(key)
            deadlines.pop(key, None)
        else:
            due = list(queue.pop_due(time))
            assert sorted(due) == sorted(key for key, deadline in deadlines.items() if deadline <= time)
            assert [deadlines[key] for key in due] == sorted(deadlines[key] for key in due)
            for key in due:
                del deadlines[key]
        assert len(queue) == len(deadlines)
        assert queue.next_due() == (min(deadlines.values()) if deadlines else None)


def test_a_timer_set_ten_thousand_times_stays_one_entry():
    queue: TimerQueue[str] = TimerQueue()
    for beat in range(10_000):
        queue.set("session", beat + 10.0)
    assert len(queue._heap) == 1
    assert queue.next_due() == 10_009.0


def test_cancelled_timers_do_not_pile_up():
    queue: TimerQueue[int] = TimerQueue()
    for number in range(1000):
        queue.set(number, float(number))
        queue.cancel(number)
    assert len(queue._heap) <= 65
    assert queue.next_due() is None


def test_a_timer_set_again_while_due_timers_are_taken_is_due_again_later():
    queue: TimerQueue[str] = TimerQueue()
    queue.set("a", 1.0)
    queue.set("b", 1.0)
    taken = []
    for key in queue.pop_due(2.0):
        taken.append(key)
        if len(taken) == 1:
            queue.set(key, 5.0)
    assert taken == ["a", "b"]
    assert list(queue.pop_due(5.0)) == ["a"]
