"""The story of a run names the violation, the faults and what they hit, and what happened to the records involved."""

from __future__ import annotations

from oncelog_simulation.plan import Plan, Strike
from oncelog_simulation.run import Outcome
from oncelog_simulation.story import WIDTH, tell
from oncelog_simulation.timeline import Timeline
from oncelog_simulation.workloads.notes import Notes
from oncelog_simulation.world import Violation
from oncelog_testing.history.events import Place

PLAN = Plan(seed=42, seconds=9.0, strikes=(Strike(2.0, "kill", ("broker-2",), 1.5),), workloads=("writer-1",))


def outcome(violations: tuple[Violation, ...]) -> Outcome:
    timeline = Timeline(lambda: 3.25)
    timeline.note("broker-2", "is killed")
    for _ in range(9):
        timeline.note("broker-1", "WARNING cannot fetch", leader=2)
    timeline.note("world", "calm: all faults are over")
    return Outcome(PLAN, timeline, violations, {"kill": 1}, 12.0, 100, timeline.digest())


def test_a_failing_seed_is_told() -> None:
    notes = Notes()
    times = iter((1.5, 1.75))
    notes.history.clock = lambda: next(times)
    send = notes.history.send("writer-1/1", Place("lines", 1), b"writer-1/1/7")
    notes.history.acknowledged(send, 12)
    notes.history.finally_holds(Place("lines", 1), [])
    told = tell(outcome((Violation(11.0, "history", "LOST: b'writer-1/1/7' of writer-1/1"),)), notes)
    lines = told.splitlines()
    assert lines[0] == "Seed 42: 1 violation"
    assert "     11.000 s  history: LOST: b'writer-1/1/7' of writer-1/1" in lines
    assert "      2.000 s after their start: kill -9 of a broker (broker-2) for 1.5 s" in lines
    life = next(line for line in lines if line.startswith("  writer-1/1/7:"))
    assert "sent by writer-1/1 to lines-1 at 1.500 s" in life
    assert "acknowledged at 1.750 s with offset 12; missing at the end" in life
    assert sum("cannot fetch" in line for line in lines) == 3
    assert "... 6 times more, until 3.250 s" in told
    assert lines[-1].endswith("replay 42")
    assert max(map(len, lines)) <= WIDTH


def test_a_seed_without_a_violation_is_told_too() -> None:
    assert tell(outcome(()), Notes()).startswith("Seed 42: all is well\n")
