"""The hunt for a defect: finds the first seed in whose run a judge notices the defect.

A defect is inserted when its module is imported, so each defect is hunted in a separate process: `python -m
oncelog_simulation.defects.hunt NAME SEEDS SECONDS` runs one seed after another and prints one line of JSON. If a seed
finds a violation, the same plan is run once more without the defect, by the command `... NAME SEED clean`: a violation
that also occurs without the defect is no evidence.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from collections.abc import Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from typing import Final, NamedTuple

from oncelog_simulation.defects.catalogue import DEFECTS
from oncelog_simulation.defects.defect import Defect, install
from oncelog_simulation.plan import Plan

HUNT_SECONDS: Final = 600.0
"""Limit on the processor time, in seconds, of the search for one defect."""
SECONDS: Final = 9.0
"""Limit on the virtual seconds of a run: the effect of a defect either shows soon, or with another seed."""
PACE: Final = 0.5
"""The value of `Plan.pace` during a hunt: clients make many steps in a short time."""
CLEAN: Final = "clean"
"""The command-line argument that stands in place of SECONDS and means: run this one seed without the defect."""
WELL: Final = "all is well"
SHOWN: Final = 160
"""Limit on the characters of a violation that the report shows."""


class Found(NamedTuple):
    """The result of the hunt for one defect."""

    name: str
    seed: int
    """The first seed that found the defect; 0 if none did."""
    tried: int
    seconds: float
    """Seconds of processor time for all seeds together."""
    judge: str = ""
    violation: str = ""

    @property
    def is_found(self) -> bool:
        """Whether one of the seeds that the catalogue allows for this defect has found it."""
        return 0 < self.seed <= DEFECTS[self.name].seeds


def hunt_all(names: Iterable[str], jobs: int, seconds: float = HUNT_SECONDS) -> Iterator[Found]:
    """Hunt each of the defects, with `jobs` concurrent processes; yields the results in the order of the names."""
    with ThreadPoolExecutor(max(1, jobs)) as pool:
        yield from pool.map(lambda name: _in_own_process(DEFECTS[name], seconds), names)


def _in_own_process(defect: Defect, seconds: float) -> Found:
    line = _output(defect.name, str(defect.seeds), str(seconds))
    if not line.startswith("{"):
        return Found(defect.name, 0, 0, 0.0, "hunt", f"the process failed: {line}")
    found = Found(**json.loads(line))
    if found.seed and (clean := _output(defect.name, str(found.seed), CLEAN)) != WELL:
        return found._replace(seed=0, violation=f"seed {found.seed} fails without the defect, too: {clean}"[:SHOWN])
    return found


def _output(*arguments: str) -> str:
    """Run a hunt in a separate process; returns the last line that it prints, or the end of its error output."""
    environment = {**os.environ, "PYTHONHASHSEED": "0"}
    command = [sys.executable, "-m", "oncelog_simulation.defects.hunt", *arguments]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    lines = done.stdout.splitlines()
    return lines[-1] if done.returncode == 0 and lines else done.stderr.strip()[-SHOWN:]


def hunt(defect: Defect, seeds: int, seconds: float) -> Found:
    """Install the defect in this process, and run seeds until one seed finds it. Raises DefectIsStale."""
    install(defect)
    clock = time.process_time  # processor time, because elapsed time would end the hunt earlier on a busy machine
    began, tried = clock(), 0
    for seed in range(1, seeds + 1):
        if clock() - began > seconds:
            break
        tried = seed
        violation = _first_violation(defect, seed)
        if violation is not None:
            return Found(defect.name, seed, tried, round(clock() - began, 1), *violation)
    return Found(defect.name, 0, tried, round(clock() - began, 1))


def _first_violation(defect: Defect, seed: int) -> tuple[str, str] | None:
    """Return the judge's name and the text of the first violation in the run of this seed; None if there is none."""
    from oncelog_simulation.run import run
    from oncelog_simulation.scenario import WholeCluster, draw_whole_plan
    from oncelog_simulation.scenes.drawing import draw_directed_plan

    if defect.scene:
        plan = draw_directed_plan(seed, defect.scene)
    else:
        plan = shortened(draw_whole_plan(seed, defect.workloads, defect.faults))
    try:
        outcome = run(plan, WholeCluster())
    except Exception as error:  # a defect may make brokers or clients raise any exception
        return "run", f"{type(error).__name__}: {error}"[:SHOWN]
    for violation in outcome.violations:
        return violation.judge, violation.what[:SHOWN]
    return None


def shortened(plan: Plan) -> Plan:
    """Return the plan limited to SECONDS, with all its strikes, and with clients that pause little between steps."""
    share = min(1.0, SECONDS / plan.seconds)
    strikes = tuple(replace(strike, at=round(strike.at * share, 3)) for strike in plan.strikes)
    return replace(plan, seconds=round(plan.seconds * share, 3), strikes=strikes, pace=PACE)


def main(arguments: list[str]) -> None:
    """Run one hunt, or one run without the defect, in this process."""
    name, seeds, seconds = arguments
    defect = DEFECTS[name]
    if seconds == CLEAN:
        violation = _first_violation(defect, int(seeds))
        print(WELL if violation is None else ": ".join(violation))
    else:
        print(json.dumps(hunt(defect, int(seeds), float(seconds))._asdict()))


if __name__ == "__main__":
    main(sys.argv[1:])
