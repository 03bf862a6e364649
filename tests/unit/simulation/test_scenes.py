"""Directed plans: each seed draws a scene, and the clients and settings that the scene needs."""

from __future__ import annotations

import pytest

from oncelog_broker.config.load import load_broker_config
from oncelog_simulation.faults.catalogue import FAULTS
from oncelog_simulation.scenario import DRAWN, WholeCluster
from oncelog_simulation.scenes.actors import ALL as ACTORS
from oncelog_simulation.scenes.catalogue import SCENES
from oncelog_simulation.scenes.drawing import draw_directed_plan
from oncelog_simulation.workloads.catalogue import WORKLOADS
from oncelog_simulation.world import World

MANY = 300


def test_each_scene_is_drawn_by_some_seed_and_no_other_fault_strikes() -> None:
    plans = [DRAWN["directed"](seed) for seed in range(1, MANY)]
    assert {plan.scene for plan in plans} == SCENES.keys()
    assert not any(plan.strikes for plan in plans)
    assert not SCENES.keys() & FAULTS.keys()


def test_the_plan_of_a_seed_is_the_same_each_time() -> None:
    assert draw_directed_plan(5) == draw_directed_plan(5)
    assert draw_directed_plan(5, "grown log").scene == "grown log"


@pytest.mark.parametrize("name", SCENES)
def test_the_clients_and_settings_of_a_scene_exist(name: str) -> None:
    scene = SCENES[name]
    assert {*scene.workloads, *scene.others} <= WORKLOADS.keys()
    assert set(scene.actors) <= ACTORS.keys()
    plan = draw_directed_plan(1, name)
    settings = {"node.id": "1", "zookeeper.connect": "store:2181", **plan.settings}
    load_broker_config(None, {}, [f"{key}={value}" for key, value in settings.items()])


def test_the_director_and_the_actors_work_in_a_plan_with_a_scene() -> None:
    world = World(draw_directed_plan(1, "cut-off leader"))
    try:
        names = {workload.name for workload in WholeCluster().workloads(world)}
        assert {"scene", *SCENES["cut-off leader"].actors} <= names
    finally:
        world.end()
