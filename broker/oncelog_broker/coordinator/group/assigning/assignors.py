"""The assignors of consumer groups by name."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from oncelog_broker.coordinator.group.assigning.range_assignor import assign_ranges
from oncelog_broker.coordinator.group.assigning.spec import Assignor
from oncelog_broker.coordinator.group.assigning.uniform import assign_uniformly

ASSIGNORS: Final[Mapping[str, Assignor]] = {"uniform": assign_uniformly, "range": assign_ranges}
"""The assignors that members may request, if group.consumer.assignors lists them."""
