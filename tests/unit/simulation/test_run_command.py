"""The command `run`: what becomes of a seed whose run fails."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from click.testing import CliRunner

from oncelog_simulation import command
from oncelog_simulation.plan import Plan
from oncelog_simulation.run import Outcome, Scenario, run


def test_a_run_that_raises_counts_as_failed_and_the_next_seed_runs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def first_raises(plan: Plan, scenario: Scenario) -> Outcome:
        if plan.seed == 1:
            raise RuntimeError("a mistake of a workload")
        return run(plan, scenario)

    monkeypatch.setattr(command, "run", first_raises)
    report = tmp_path / "report.json"
    monkeypatch.setenv("PYTHONHASHSEED", command.HASH_SEED)
    done = CliRunner().invoke(command.main, ["run", "--plans", "short", "--seeds", "1-2", "--report", str(report)])
    assert done.exit_code == 1, done.output
    assert "a mistake of a workload" in done.output
    seen = json.loads(report.read_text())
    assert (seen["seeds"], seen["failed"]) == (2, [1])
