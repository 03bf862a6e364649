"""Defects of share groups: acquisition, locks, the count of deliveries, and the state of share partitions."""

from __future__ import annotations

from typing import Final

from oncelog_simulation.defects.defect import Defect

SHARES: Final = ("writer-1", "writer-2", "sharer-1", "sharer-2", "sharer-3")
"""The group has more members than partitions, because otherwise each partition would have only one member."""

FAULTS: Final = ("kill", "pause", "stop", "session ends", "kill a client", "slow links")
"""The faults that strike while these defects are hunted, unless a defect names its own faults."""

DEFECTS: Final = (
    Defect(
        "accepted-before-written",
        "a share partition's leader confirms an acceptance before the share coordinator has it",
        "oncelog_broker.sharing.hosted_share_partition",
        "        return kept\n",
        "        return None\n",
        SHARES,
        30,
        ("kill", "pause", "stop", "partition", "session ends", "kill a client", "resets"),
    ),
    Defect(
        "handed-to-two",
        "a record is handed to a member while another one has it",
        "oncelog_broker.sharing.acquisition",
        "            if not run.is_free:\n                continue\n            if terms",
        "            if not run.is_free and (run.state is not DeliveryState.ACQUIRED or run.becomes is not None):\n                continue\n            if terms",
        SHARES,
        40,
        ("kill a client", "pause"),
    ),
    Defect(
        "delivery-not-counted",
        "the deliveries of a record after the first one are not counted",
        "oncelog_broker.sharing.acquisition",
        "            run.deliveries += 1\n",
        "            run.deliveries = max(run.deliveries, 1)\n",
        SHARES,
        40,
        ("kill a client", "kill"),
    ),
    Defect(
        "lock-never-expires",
        "a member keeps the records that it does not acknowledge",
        "oncelog_broker.sharing.share_partition",
        "            if run.state is DeliveryState.ACQUIRED and run.deadline <= now and run.becomes is None\n",
        "            if run.state is DeliveryState.ACQUIRED and run.deadline < 0 and run.becomes is None\n",
        SHARES,
        40,
        ("pause", "slow links"),
    ),
    Defect(
        "share-state-not-read",
        "a new leader hands out again what the group has accepted",
        "oncelog_broker.sharing.share_partition",
        "        for first, last, state, deliveries in batches:\n",
        "        for first, last, state, deliveries in ():\n",
        SHARES,
        40,
        ("kill", "stop", "session ends"),
    ),
    Defect(
        "share-changes-dropped",
        "changes of records above the start offset are not written to the share coordinator",
        "oncelog_broker.sharing.share_partition",
        "        start = self.kept_start_offset\n        changes, self.outbox",
        "        start = self.runs.end\n        changes, self.outbox",
        SHARES,
        40,
        ("kill", "session ends"),
    ),
    Defect(
        "closed-session-keeps-locks",
        "the records of a member whose share session has ended stay locked until their locks expire",
        "oncelog_broker.sharing.share_partitions",
        "                hosted.release(session.member_id)\n",
        "                pass\n",
        SHARES,
        20,
        (
            "kill a client",
            "resets",
        ),
    ),
    Defect(
        "others-record-accepted",
        "a member may accept records that another member has acquired",
        "oncelog_broker.sharing.acknowledgement",
        "        if run.owner != terms.owner:\n",
        "        if run.owner is None:\n",
        ("stranger-1",),
        20,
        (
            "kill a client",
            "pause",
        ),
    ),
    Defect(
        "former-share-leader-writes",
        "the share coordinator accepts a state from the former leader of a share partition",
        "oncelog_broker.coordinator.share.share_state_machine",
        "    if leader_epoch < state.leader_epoch:\n",
        "    if leader_epoch < 0:\n",
        ("late-peer-1", "writer-1", "sharer-1", "sharer-2"),
        20,
        (
            "kill",
            "stop",
            "session ends",
        ),
    ),
)
