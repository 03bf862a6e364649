"""Bugs that single seeds found in oncelog, put back as defects. Each is hunted with the scene that recreates its
situation.
"""

from __future__ import annotations

from typing import Final

from oncelog_simulation.defects.defect import Defect

FAULTS: Final[tuple[str, ...]] = ()
"""No fault strikes but those of the scene."""

DEFECTS: Final = (
    Defect(
        "flipped-bit-replayed",
        "a coordinator replays a damaged record of its log",
        "oncelog_broker.coordinator.loading",
        "        if not batch.crc_is_valid():\n",
        "        if False:\n",
        (),
        10,
        scene="damaged coordinator",
    ),
    Defect(
        "newer-state-gone",
        "the controller refuses each proposal of a leader whose newer state a restored metadata store has lost",
        "oncelog_broker.controller.alter_partition",
        "    if is_ahead and (proposal.sender, proposal.leader_epoch) == (state.leader, state.leader_epoch):\n        return _begun_anew(view, key, controller_epoch)\n",
        "",
        (),
        10,
        scene="lost store writes",
    ),
    Defect(
        "stopping-broker-leads-again",
        "a broker that stops leads again by a later cluster image",
        "oncelog_broker.replication.replicas",
        "        if self._is_closed:\n            return\n        key = (partition.topic, partition.index)\n",
        "        key = (partition.topic, partition.index)\n",
        (),
        10,
        scene="stopping leader",
    ),
    Defect(
        "middle-of-batch-refused",
        "a replica refuses the first batch of a leader whose log starts in the middle of this batch",
        "oncelog_broker.replication.fetch_response",
        "            and first.base_offset < log.log_end_offset <= first.last_offset\n",
        "            and False\n",
        (),
        60,
        scene="left behind",
    ),
)
