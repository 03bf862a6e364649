"""Directed seeds: scenes really come about, break no rule, and have the same events in each run."""

import pytest
from tests.simulation.test_seeds import command

from oncelog_simulation.run import run
from oncelog_simulation.scenario import WholeCluster
from oncelog_simulation.scenes.drawing import draw_directed_plan

SCENES = ("cut-off leader", "grown log", "returned twice")
"""One scene of each kind of danger: truncation, opening of logs, election."""
TWICE = 3
"""The directed seed that is run twice."""


@pytest.mark.timeout(400)
@pytest.mark.parametrize("scene", SCENES)
def test_a_scene_comes_about_and_breaks_no_rule(scene: str) -> None:
    outcome = run(draw_directed_plan(1, scene), WholeCluster())
    assert outcome.violations == ()
    assert outcome.struck[scene] > 0


@pytest.mark.timeout(400)
def test_two_runs_of_a_directed_seed_have_the_same_event_log_to_the_byte() -> None:
    said, code = command("run", "--plans", "directed", "--twice", "--seeds", f"{TWICE}-{TWICE}")
    assert code == 0, said
