"""Draws directed plans: each seed has one scene, on top of light workloads, and no other fault."""

from __future__ import annotations

from typing import Final

from oncelog_simulation.entropy import stream
from oncelog_simulation.plan import Plan
from oncelog_simulation.scenes.catalogue import SCENES
from oncelog_simulation.scenes.scene import FEW
from oncelog_simulation.workloads.catalogue import SETTINGS, with_needed

PACES: Final = (0.1, 0.2, 0.4)
"""Values of `Plan.pace` from which each seed draws one: the clients of a scene pause little between two steps."""
LATE_SHARES: Final = (0.01, 0.01, 0.1)
LENGTHS: Final = (0.8, 1.2)
"""Minimum and maximum of the factor by which the duration of a scene's run varies."""


def draw_directed_plan(seed: int, name: str = "") -> Plan:
    """Return the plan of a seed. `name`: the scene to play; empty means that the seed draws a scene."""
    random = stream(seed, "directed")
    drawn = random.choice(sorted(SCENES))
    scene = SCENES[name or drawn]
    others = random.sample(scene.others, min(FEW, len(scene.others)))
    return Plan(
        seed,
        seconds=round(scene.seconds * random.uniform(*LENGTHS), 3),
        directories=scene.directories,
        pace=random.choice(PACES),
        late_share=random.choice(LATE_SHARES),
        settings={**SETTINGS, **{key: random.choice(values) for key, values in sorted(scene.settings.items())}},
        workloads=with_needed((*scene.workloads, *others)),
        scene=scene.name,
    )
