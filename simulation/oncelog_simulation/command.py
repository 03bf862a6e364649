"""The command line, for example `python -m oncelog_simulation run --seeds 1-200`, or `replay 17`.

Every run takes place in one process, and depends only on its seed. Because the hashes of strings could also change a
run, the command restarts itself with PYTHONHASHSEED=0 if that variable is not set.
"""

from __future__ import annotations

import json
import os
import sys
import time
import traceback
from collections import Counter
from collections.abc import Iterator, Mapping
from itertools import count
from pathlib import Path
from typing import Any, Final

import click

from oncelog_simulation.defects.catalogue import DEFECTS
from oncelog_simulation.defects.hunt import HUNT_SECONDS, hunt_all
from oncelog_simulation.defects.report import line_of, put_between, write_into
from oncelog_simulation.faults.catalogue import FAULTS
from oncelog_simulation.plan import Plan
from oncelog_simulation.reached import BEGIN as BRANCHES
from oncelog_simulation.reached import END as END_OF_BRANCHES
from oncelog_simulation.reached import measure
from oncelog_simulation.run import Outcome, run
from oncelog_simulation.scale.command import scale
from oncelog_simulation.scenario import DRAWN, WholeCluster, draw_whole_plan
from oncelog_simulation.shrink import MOST_RUNS, shrink
from oncelog_simulation.story import tell

HASH_SEED: Final = "0"
BEGIN_OF_FAULTS: Final = "<!-- faults -->\n"
END_OF_FAULTS: Final = "<!-- end of faults -->\n"
PROGRESS_SECONDS: Final = 20.0
"""Seconds between two progress lines of a long run."""


@click.group()
def main() -> None:
    """Simulated clusters: real brokers and clients in one process, with time, network and disks made from a seed."""
    with_fixed_hashes()


def with_fixed_hashes() -> None:
    """Run this command again with PYTHONHASHSEED set, unless it is set already."""
    if os.environ.get("PYTHONHASHSEED") != HASH_SEED:
        environment = {**os.environ, "PYTHONHASHSEED": HASH_SEED}
        os.execve(sys.executable, [sys.executable, "-m", "oncelog_simulation", *sys.argv[1:]], environment)  # noqa: S606


@main.command("run")
@click.option("--seeds", default="1-", show_default=True, help="The first and the last seed; 17-: from 17 on.")
@click.option("--seconds", type=float, help="Stop after so many seconds of real time.")
@click.option(
    "--plans",
    type=click.Choice(list(DRAWN)),
    default="whole",
    show_default=True,
    help="short: a third of the time, and slow clients: many seeds in a minute. light: hours with little load. "
    "weeks: days with rare load.",
)
@click.option("--twice", is_flag=True, help="Run each seed twice, and compare the hashes of both event logs.")
@click.option(
    "--out",
    type=click.Path(exists=True, dir_okay=False, path_type=Path),
    help="A page to put the table of faults into.",
)
@click.option("--report", type=click.Path(dir_okay=False), help="Write what was seen, as JSON.")
def run_seeds(seeds: str, seconds: float | None, plans: str, twice: bool, out: Path | None, report: str | None) -> None:
    """Run one seed after another; exit with 1 if a run has broken a rule."""
    first, _, last = seeds.partition("-")
    total = Totals()
    for seed in _seeds(int(first), int(last) if last else None, seconds):
        plan = DRAWN[plans](seed)
        try:
            outcome = run(plan, WholeCluster())
        except Exception:
            click.echo(f"seed {seed}: the simulation itself failed\n{traceback.format_exc()}")
            total.seeds += 1
            total.failed.append(seed)
            continue
        total.add(outcome)
        if twice and run(plan, WholeCluster()).digest != outcome.digest:
            total.failed.append(seed)
            click.echo(f"seed {seed}: two runs had different event logs")
        if outcome.violations:
            click.echo(f"seed {seed}: {len(outcome.violations)} violations, the first: {outcome.violations[0].what}")
            click.echo(
                f"    python -m oncelog_simulation replay {seed}{'' if plans == 'whole' else f' --plans {plans}'}"
            )
        total.tell_progress(seed)
    click.echo(total.table())
    if out is not None:
        put_between(out, BEGIN_OF_FAULTS, END_OF_FAULTS, total.as_markdown())
    if report is not None:
        with open(report, "w") as file:
            json.dump(total.as_json(), file, indent=1)
    sys.exit(1 if total.failed else 0)


@main.command()
@click.argument("seed", type=int)
@click.option(
    "--plans", type=click.Choice(list(DRAWN)), default="whole", show_default=True, help="As `run --plans` runs it."
)
@click.option("--timeline/--no-timeline", default=True, show_default=True, help="Print all events.")
def replay(seed: int, plans: str, timeline: bool) -> None:
    """Run one seed again, and print its story."""
    plan = DRAWN[plans](seed)
    click.echo(f"seed {seed}: {plan.seconds:g} s, workloads {', '.join(plan.workloads)}")
    for strike in plan.strikes:
        click.echo(f"  {strike}")
    outcome = run(plan, WholeCluster())
    for line in outcome.timeline.lines() if timeline else ():
        click.echo(line)
    for violation in outcome.violations:
        click.echo(f"{violation.at:12.6f} {violation.judge}: {violation.what}")
    click.echo(f"{outcome.virtual_seconds:.1f} virtual seconds, {outcome.turns} turns, {outcome.digest}")
    sys.exit(1 if outcome.violations else 0)


@main.command()
@click.argument("seed", type=int)
@click.option("--runs", default=MOST_RUNS, show_default=True, help="Runs to make the plan smaller; 0: none.")
def story(seed: int, runs: int) -> None:
    """Shrink the plan of a failing seed until no smaller plan fails, and print its events."""
    plan = shrink(draw_whole_plan(seed), _first_judge, runs) if runs else draw_whole_plan(seed)
    scenario = WholeCluster()
    outcome = run(plan, scenario)
    click.echo(tell(outcome, scenario.notes))
    sys.exit(1 if outcome.violations else 0)


def _first_judge(plan: Plan) -> str | None:
    """Return the name of the judge that finds the first violation in a run of the plan; None if no judge finds one."""
    violations = run(plan, WholeCluster()).violations
    return violations[0].judge if violations else None


@main.command()
@click.argument("names", nargs=-1)
@click.option("--jobs", default=1, show_default=True, help="How many defects are hunted at a time.")
@click.option("--seconds", default=HUNT_SECONDS, show_default=True, help="How long one is looked for at most.")
@click.option(
    "--out", type=click.Path(exists=True, dir_okay=False, path_type=Path), help="A page to put the table into."
)
def defects(names: tuple[str, ...], jobs: int, seconds: float, out: Path | None) -> None:
    """Remove or change lines of the real code, one defect after another, and find the first seed that detects each
    defect.
    """
    results = []
    for found in hunt_all(names or DEFECTS, jobs, seconds):
        results.append(found)
        click.echo(line_of(found))
    if out is not None:
        write_into(out, results)
    click.echo(f"{sum(found.is_found for found in results)} of {len(results)} found")
    sys.exit(0 if all(found.is_found for found in results) else 1)


@main.command()
@click.argument("reports", nargs=-1, required=True, type=click.Path(exists=True, dir_okay=False, path_type=Path))
@click.option(
    "--out",
    type=click.Path(exists=True, dir_okay=False, path_type=Path),
    help="A page to put the table of faults into.",
)
def totals(reports: tuple[Path, ...], out: Path | None) -> None:
    """Add up the reports of several runs that `run --report` has written."""
    total = Totals()
    for report in reports:
        total.add_report(json.loads(report.read_text()))
    click.echo(total.table())
    if out is not None:
        put_between(out, BEGIN_OF_FAULTS, END_OF_FAULTS, total.as_markdown())


@main.command()
@click.option("--seeds", default="1-100", show_default=True, help="The first and the last seed.")
@click.option(
    "--out", type=click.Path(exists=True, dir_okay=False, path_type=Path), help="A page to put the table into."
)
def coverage(seeds: str, out: Path | None) -> None:
    """Show which branches of replication, controller, coordinators and log the seeds reach."""
    first, _, last = seeds.partition("-")
    table, left = measure(int(first), int(last))
    click.echo(f"{table}\nThe most are left in these modules, at these lines:\n{left}")
    if out is not None:
        put_between(out, BRANCHES, END_OF_BRANCHES, f"Of seeds {seeds}:\n\n{table}")


@main.command()
def faults() -> None:
    """List the faults that a seed may draw."""
    for name, fault in FAULTS.items():
        click.echo(f"{name:<26} {fault.title}")


main.add_command(scale)


class Totals:
    """The combined results of many runs."""

    def __init__(self) -> None:
        self.began = time.monotonic()
        self.cpu = time.process_time()
        self.seeds = 0
        self.virtual_seconds = 0.0
        self.struck: Counter[str] = Counter()
        self.failed: list[int] = []
        self._told = self.began

    def add(self, outcome: Outcome) -> None:
        self.seeds += 1
        self.virtual_seconds += outcome.virtual_seconds
        self.struck.update(outcome.struck)
        if outcome.violations:
            self.failed.append(outcome.plan.seed)

    def add_report(self, report: Mapping[str, Any]) -> None:
        """Add a report that `as_json` of another process has written."""
        self.seeds += report["seeds"]
        self.virtual_seconds += report["virtual_seconds"]
        self.struck.update(report["struck"])
        self.failed += report["failed"]
        self.cpu -= report["cpu_seconds"]

    def tell_progress(self, seed: int) -> None:
        """Print the progress from time to time."""
        now = time.monotonic()
        if now - self._told > PROGRESS_SECONDS:
            self._told = now
            click.echo(f"... seed {seed}: {self.virtual_seconds / 3600:.2f} virtual hours, {len(self.failed)} failed")

    def table(self) -> str:
        """Return the results as text for people."""
        seconds = time.process_time() - self.cpu
        lines = [
            f"{self.seeds} seeds, {self.virtual_seconds / 3600:.2f} virtual hours in {seconds:.0f} s of processor time,"
            f" {self.virtual_seconds / max(seconds, 0.001):.0f} times faster than the clock",
            f"failed: {', '.join(map(str, self.failed)) or 'none'}",
            "how often each fault has struck:",
        ]
        return "\n".join([*lines, *(f"  {name:<26} {self.struck[name]}" for name in FAULTS)])

    def as_markdown(self) -> str:
        """Return the results as Markdown."""
        seconds = time.process_time() - self.cpu
        failed = f"{len(self.failed)} of them broke a rule" if self.failed else "none of them broke a rule"
        rows = [f"| {name} | {fault.title} | {self.struck[name]} |\n" for name, fault in FAULTS.items()]
        return (
            f"{self.seeds} seeds, {self.virtual_seconds / 3600:.1f} virtual hours in {seconds:.0f} s of processor time:"
            f" {failed}.\n\n| Fault | What happens | Struck |\n|---|---|---:|\n" + "".join(rows)
        )

    def as_json(self) -> dict[str, object]:
        """Return the results as a JSON object, for programs."""
        return {
            "seeds": self.seeds,
            "virtual_seconds": round(self.virtual_seconds, 1),
            "cpu_seconds": round(time.process_time() - self.cpu, 1),
            "failed": self.failed,
            "struck": {name: self.struck[name] for name in FAULTS},
        }


def _seeds(first: int, last: int | None, seconds: float | None) -> Iterator[int]:
    """Yield the seeds from the first to the last one, as long as time is left."""
    until = None if seconds is None else time.monotonic() + seconds
    for seed in count(first):
        if (last is not None and seed > last) or (until is not None and time.monotonic() > until):
            return
        yield seed
