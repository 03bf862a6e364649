"""The catalogue of seeded defects: each defect can be applied to the present code. `test_story_commands.py` runs the
command that hunts one of them.
"""

from __future__ import annotations

import subprocess
import sys
from types import SimpleNamespace

import pytest

from oncelog_broker.replication.high_watermark import replicated_offset
from oncelog_simulation.defects.catalogue import DEFECTS
from oncelog_simulation.defects.defect import Defect, DefectIsStale, changed, install, source_of
from oncelog_simulation.defects.hunt import Found, _first_violation
from oncelog_simulation.defects.report import BEGIN, END, table, write_into
from oncelog_simulation.faults.catalogue import FAULTS
from oncelog_simulation.plan import Plan
from oncelog_simulation.scenes.catalogue import SCENES
from oncelog_simulation.scenes.drawing import draw_directed_plan
from oncelog_simulation.workloads.catalogue import WORKLOADS

FEWEST = 40
QUICK = "any-sequence-is-next"


@pytest.mark.parametrize("name", DEFECTS)
def test_a_defect_fits_the_code(name: str) -> None:
    defect = DEFECTS[name]
    text = changed(source_of(defect.module), defect)
    compile(text, defect.module, "exec")
    assert set(defect.workloads) <= WORKLOADS.keys()
    assert defect.faults is not None
    assert set(defect.faults) <= FAULTS.keys()
    assert defect.scene in {"", *SCENES}
    assert bool(defect.scene) != bool(defect.workloads)
    assert defect.seeds > 0


def test_there_are_many_defects_all_of_them_different() -> None:
    assert len(DEFECTS) >= FEWEST
    assert len({(defect.module, defect.old, defect.new) for defect in DEFECTS.values()}) == len(DEFECTS)


@pytest.mark.parametrize("source", ["nothing of that kind", "the line\nthe line\n"])
def test_a_text_that_does_not_occur_exactly_once_is_stale(source: str) -> None:
    with pytest.raises(DefectIsStale, match="not once"):
        changed(source, Defect("stale", "", "module", "the line\n", "", (), 1))


def test_a_module_that_is_imported_already_cannot_be_changed() -> None:
    with pytest.raises(DefectIsStale, match="imported already"):
        install(DEFECTS["any-sequence-is-next"]._replace(module="sys"))


def test_a_defect_is_in_the_module_that_a_process_imports_and_not_in_its_file() -> None:
    code = (
        "from oncelog_simulation.defects.catalogue import DEFECTS\n"
        "from oncelog_simulation.defects.defect import install\n"
        "install(DEFECTS['last-follower-counts'])\n"
        "from oncelog_broker.replication.high_watermark import replicated_offset\n"
        "print(replicated_offset(9, (3, 7)))\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "7"
    assert replicated_offset(9, (3, 7)) == 3


def test_a_defect_with_a_scene_is_hunted_with_directed_plans(monkeypatch: pytest.MonkeyPatch) -> None:
    plans: list[Plan] = []

    def run(plan: Plan, scenario: object) -> SimpleNamespace:
        plans.append(plan)
        return SimpleNamespace(violations=())

    monkeypatch.setattr("oncelog_simulation.run.run", run)
    assert _first_violation(DEFECTS["synced-not-lowered"], 3) is None
    assert plans == [draw_directed_plan(3, "cut-off leader")]


def test_the_table_goes_between_the_marks_of_a_page(tmp_path: object) -> None:
    page = tmp_path / "page.md"  # type: ignore[operator]
    page.write_text(f"before\n{BEGIN}old\n{END}after\n")
    other = "cut-by-number"
    results = [Found(QUICK, 2, 2, 3.4, "history", "appended twice"), Found(other, 0, 9, 60.0)]
    write_into(page, results)
    text = page.read_text()
    assert text == f"before\n{BEGIN}{table(results)}{END}after\n"
    assert f"| `{QUICK}` | {DEFECTS[QUICK].what} | 2 | 3 | history |" in text
    assert "| none of 9 | 60 |" in text
    write_into(page, [Found(other, 5, 5, 7.0, "history", "cut")])
    text = page.read_text()
    assert f"| `{QUICK}` | {DEFECTS[QUICK].what} | 2 | 3 | history |" in text, "a row of an earlier hunt stays"
    assert f"| `{other}` | {DEFECTS[other].what} | 5 | 7 | history |" in text
    assert "none of 9" not in text
