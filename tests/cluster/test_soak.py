"""Runs the soak for some seconds, and tests that it works, that a seed repeats its faults, and that it finds errors."""

from __future__ import annotations

from itertools import pairwise
from pathlib import Path

import pytest
from soak.faults import Done
from soak.files import what_files_say
from soak.plan import BROKERS, GAP_SECONDS, Fault, Strike, plan
from soak.progress import Stall
from soak.report import cause, keep
from soak.run import Run, Settings, unexpected
from soak.stage import Stage

SEED, SECONDS = 2765, 8.0
FAULTS = (Fault.KILL, Fault.CUT_OFF, Fault.NO_ZOOKEEPER)


@pytest.mark.timeout(140)
def test_a_short_soak_finds_nothing(tmp_path: Path) -> None:
    assert {strike.fault for strike in plan(SEED, SECONDS, FAULTS)} == set(FAULTS), "choose another seed"
    with Stage(tmp_path, zookeepers=1) as stage:
        result = Run(stage, Settings(SEED, SECONDS, FAULTS, pipelines=1)).play()
    assert not result.problems
    assert {done.strike.fault for done in result.done} == set(FAULTS)
    assert result.history.leaders
    assert len({led.epoch for led in result.history.leaders}) > 1
    assert all(result.history.final[place] for place in result.history.final)
    assert sum(send.made_of is not None for send in result.history.sends) > 10
    keep(tmp_path, result)
    assert f"| {SEED} |" in (tmp_path / "tables.md").read_text()
    assert what_files_say(tmp_path, result.history) == []
    for node_id in BROKERS:
        (log,) = (tmp_path / f"broker{node_id}" / "lines-0").glob("*.log")
        log.write_bytes(log.read_bytes()[: log.stat().st_size // 2])
    assert what_files_say(tmp_path, result.history), "acknowledged lines are gone"


def test_a_seed_repeats_its_faults() -> None:
    assert plan(7, 1800) == plan(7, 1800)
    assert plan(7, 1800) != plan(8, 1800)
    assert plan(7, 600) == [strike for strike in plan(7, 1800) if strike.at < 600]


def test_every_fault_is_repeated() -> None:
    strikes = plan(7, 1800)
    count = len(Fault)
    assert {strike.fault for strike in strikes[:count]} == {strike.fault for strike in strikes[count : 2 * count]}
    assert {strike.fault for strike in strikes} == set(Fault)
    assert all(set(strike.victims) <= set(BROKERS) for strike in strikes)
    assert all(0 < later.at - strike.at <= GAP_SECONDS[1] for strike, later in pairwise(strikes))


def test_a_stall_is_put_down_to_the_fault_that_came_first_in_it() -> None:
    first, second = (
        Done(Strike(at, fault, (1,), 1.0), at, at + 1) for at, fault in ((10.0, Fault.KILL), (20.0, Fault.PAUSE))
    )
    done = [first, second]
    assert cause(Stall("any", 9.0, 15.0), done) is first
    assert cause(Stall("any", 12.0, 15.0), done) is second
    assert cause(Stall("any", 12.0, 2.0), done) is first
    assert cause(Stall("any", 2.0, 2.0), done) is None


def test_forbidden_log_lines_are_found() -> None:
    full = ["Traceback (most recent call last):", "  File x", "OSError: [Errno 28] No space left on device"]
    other = ["Traceback (most recent call last):", "  File x", "ValueError: 7"]
    assert unexpected([*full, "a line", *other]) == ["ValueError: 7"]
