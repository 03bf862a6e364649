"""The commands `story` and `defects` are called as a user calls them."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

from oncelog_simulation.defects.report import BEGIN, END

QUICK_SEED = "21"


def call(*arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "oncelog_simulation", *arguments], capture_output=True, text=True, check=False
    )


def test_a_seed_without_violation_has_a_story() -> None:
    done = call("story", QUICK_SEED)
    assert done.returncode == 0, done.stdout + done.stderr
    assert done.stdout.startswith(f"Seed {QUICK_SEED}: all is well\n")
    assert f"replay {QUICK_SEED}" in done.stdout


def test_a_defect_is_found_and_put_into_a_page(tmp_path: Path) -> None:
    page = tmp_path / "page.md"
    page.write_text(f"{BEGIN}{END}")
    done = call("defects", "any-sequence-is-next", "--out", str(page))
    assert done.returncode == 0, done.stdout + done.stderr
    assert done.stdout.endswith("1 of 1 found\n")
    (row,) = (line for line in page.read_text().splitlines() if line.startswith("| `any-sequence-is-next` |"))
    assert row.endswith("| history |"), "the judge that found it"


def test_a_run_whose_branches_are_noted_breaks_no_rule() -> None:
    """A broker imports some modules only when it needs them, in a simulated world, where no file can be read."""
    code = (
        "from oncelog_simulation.reached import REACHED, import_rooms\n"
        "import_rooms()\n"
        "from oncelog_simulation.plan import Plan\n"
        "from oncelog_simulation.run import run\n"
        "from oncelog_simulation.scenario import WholeCluster\n"
        "from oncelog_simulation.workloads.catalogue import SETTINGS\n"
        "plan = Plan(seed=5, seconds=2.0, settings=dict(SETTINGS), workloads=('payer-1',))\n"
        "print(run(plan, WholeCluster()).violations, sum(REACHED.hit) > 500)\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout == "() True\n"
