"""Defects of the controller, of broker registration, and of values allocated through the metadata store."""

from __future__ import annotations

from typing import Final

from oncelog_simulation.defects.defect import Defect

WRITES: Final = ("writer-1", "writer-2", "reader-committed", "ends-watcher")
MOVES: Final = (*WRITES, "mover", "payer-1")

FAULTS: Final = (
    "kill",
    "pause",
    "stop",
    "isolation",
    "no store",
    "session ends",
    "lost answers of the store",
    "power cut",
)
"""The faults that strike while these defects are hunted, unless a defect names its own faults."""

DEFECTS: Final = (
    Defect(
        "election-without-epoch",
        "an election gives no new leader epoch",
        "oncelog_broker.controller.election",
        "        leader_epoch=election.state.leader_epoch + 1,\n",
        "        leader_epoch=election.state.leader_epoch,\n",
        WRITES,
        10,
    ),
    Defect(
        "anybody-is-elected",
        "a replica outside the ISR may lead though unclean elections are off",
        "oncelog_broker.controller.election",
        "    present = [broker for broker in state.isr if election.is_there(broker) and not election.is_unsure(broker)]\n",
        "    present = [broker for broker in election.replicas if election.is_there(broker)]\n",
        WRITES,
        60,
    ),
    Defect(
        "bounce-not-seen",
        "a leader that registered again since its election counts as registered without a break",
        "oncelog_broker.controller.election",
        "        return known is not None and broker in self.replicas and known.is_steady_since(self.known.written)\n",
        "        return known is not None and broker in self.replicas and known.is_live\n",
        WRITES,
        60,
    ),
    Defect(
        "leads-by-older-state",
        "a broker leads by a state that is older than its registration",
        "oncelog_broker.replication.roles",
        "    if state.leader == broker_id and state.written < broker_epoch:\n",
        "    if False:\n",
        WRITES,
        60,
        ("kill", "power cut"),
    ),
    Defect(
        "leader-moved-without-epoch",
        "a reassignment that takes a replica away gives no new leader epoch",
        "oncelog_broker.controller.reassignment",
        "    return replace(state, leader=leader, leader_epoch=state.leader_epoch + 1)\n",
        "    return replace(state, leader=leader)\n",
        ("writer-1", "mover"),
        40,
        ("kill a client",),
    ),
    Defect(
        "power-cut-not-told",
        "a broker that lost its power registers as if it had kept all records",
        "oncelog_broker.metadata.membership.registration",
        "        payload = encode_incarnation(Incarnation(is_kept, unsure_since, process))\n",
        "        payload = encode_incarnation(Incarnation(True, -1, process))\n",
        WRITES,
        200,
        ("power cut", "session ends"),
    ),
    Defect(
        "producer-ids-twice",
        "each broker gives out producer ids of the same block",
        "oncelog_broker.metadata.membership.producer_ids",
        "    return ProducerIdBlock(broker_id, end + 1, end + BLOCK_SIZE)\n",
        "    return ProducerIdBlock(broker_id, 0, BLOCK_SIZE - 1)\n",
        ("writer-1", "writer-2", "payer-1", "payer-2", "zombie-1", "zombie-2"),
        20,
    ),
    Defect(
        "departure-not-noticed",
        "the controller does not notice that a broker is absent",
        "oncelog_broker.controller.elector",
        "        self._brokers_are_stale = True\n        self._wake_up.set()\n",
        "        self._wake_up.set()\n",
        WRITES,
        20,
    ),
    Defect(
        "deleted-log-stays",
        "the log of a deleted topic is not deleted, and is found by the re-created topic",
        "oncelog_broker.replication.log_opener",
        'treats the log as stray.\n        """\n        self._ask(UnwantedLog(key))\n',
        'treats the log as stray.\n        """\n',
        ("topic-maker", "writer-1"),
        20,
    ),
    Defect(
        "moved-before-in-sync",
        "a reassignment ends before its new replicas are in sync",
        "oncelog_broker.controller.reassignment",
        "    return assignment.is_reassigned and set(assignment.target) <= set(known.state.isr)\n",
        "    return assignment.is_reassigned and bool(set(assignment.target) & set(known.state.isr))\n",
        MOVES,
        60,
    ),
    Defect(
        "changed-settings-ignored",
        "a changed setting of a topic does not reach the logs that are open",
        "oncelog_broker.replication.replicas",
        "                    partition.update_config(config)\n",
        "                    pass\n",
        MOVES,
        40,
    ),
    Defect(
        "lease-ignored",
        "a broker that does not hear of the metadata store goes on leading when its session may have expired",
        "oncelog_broker.metadata.membership.membership",
        "        return self._is_current and (not self._is_strict or self._clock.uptime() < self._store.lease_until)\n",
        "        return True\n",
        WRITES,
        40,
        ("no answers of the store", "isolation from all", "no store"),
    ),
)
