"""Defects of transactions: fences, decisions, markers, verification, timeouts."""

from __future__ import annotations

from typing import Final

from oncelog_simulation.defects.defect import Defect

PAYS: Final = ("payer-1", "payer-2", "zombie-1", "zombie-2", "reader-committed")
PREPARES: Final = ("two-phase-1", "two-phase-2", "reader-committed")
HAUNTS: Final = ("zombie-1", "zombie-2", "payer-1", "reader-committed")

FAULTS: Final = ("kill", "pause", "stop", "partition", "isolation", "session ends", "kill a client", "resets")
"""The faults that make these defects visible, unless a defect names its own."""

DEFECTS: Final = (
    Defect(
        "epoch-not-raised",
        "a producer that takes a transactional id over gets the epoch of the one before",
        "oncelog_broker.coordinator.transaction.metadata",
        "        return ProducerIdAndEpoch(producer.producer_id, producer.epoch + 1)\n",
        "        return ProducerIdAndEpoch(producer.producer_id, max(0, producer.epoch))\n",
        PAYS,
        10,
    ),
    Defect(
        "fenced-producer-ends",
        "EndTxn of a fenced producer ends the transaction of its successor",
        "oncelog_broker.coordinator.transaction.ending",
        "    if not metadata.belongs_to(asking):\n        raise _fenced(metadata, asking)\n    if metadata.state is TransactionState.ONGOING:\n",
        "    if metadata.state is TransactionState.ONGOING:\n",
        HAUNTS,
        20,
    ),
    Defect(
        "fenced-producer-adds",
        "AddPartitionsToTxn of a fenced producer is accepted",
        "oncelog_broker.coordinator.transaction.machine",
        "        if not metadata.belongs_to(asking):\n            raise KafkaError(ErrorCode.PRODUCER_FENCED",
        "        if False:\n            raise KafkaError(ErrorCode.PRODUCER_FENCED",
        HAUNTS,
        20,
    ),
    Defect(
        "end-is-changed",
        "a transaction that was committed may be aborted afterwards, and the other way round",
        "oncelog_broker.coordinator.transaction.ending",
        "    if metadata.state.is_prepared:\n        raise _concurrent(metadata)\n    if metadata.state is completed_state(commits):\n        return metadata\n",
        "    if metadata.state.is_prepared:\n        raise _concurrent(metadata)\n    if metadata.state is not TransactionState.EMPTY:\n        return metadata\n",
        HAUNTS,
        20,
    ),
    Defect(
        "not-verified",
        "a record is appended without asking whether its transaction is open (KIP-890)",
        "oncelog_broker.coordinator.transaction.verification",
        "    if not not_open or not (registers or coordinator.verifies):\n",
        "    if not not_open or not registers:\n",
        HAUNTS,
        20,
    ),
    Defect(
        "decisions-not-finished",
        "a coordinator that takes over does not complete decided transactions",
        "oncelog_broker.coordinator.transaction.machine",
        "        for metadata in [each for each in self._transactions.values() if each.state.is_prepared]:\n",
        "        for metadata in ():\n",
        PAYS,
        60,
    ),
    Defect(
        "no-timeout",
        "a transaction that its producer does not end is never aborted",
        "oncelog_broker.coordinator.transaction.machine",
        "        return self._monotonic() - begun > known.timeout_ms / 1000\n",
        "        return self._monotonic() - begun > known.timeout_ms\n",
        HAUNTS,
        20,
    ),
    Defect(
        "offsets-left-out-of-end",
        "committed offsets do not become visible with the marker of their transaction",
        "oncelog_broker.coordinator.transaction.markers",
        "        if where.topic == CONSUMER_OFFSETS:\n",
        "        if False:\n",
        ("payer-1", "payer-2", "pipeline-1", "writer-1", "offsets-watcher"),
        10,
    ),
    Defect(
        "one-epoch-for-many",
        "transactions V2 keep their epoch: what is late counts for the next one",
        "oncelog_broker.coordinator.transaction.metadata",
        "        if client_transaction_version >= TRANSACTIONS_V2:\n            changes = {**self._raised(spare_producer_id)",
        "        if False:\n            changes = {**self._raised(spare_producer_id)",
        PAYS,
        10,
    ),
    Defect(
        "takeover-leaves-open",
        "a producer that takes over a transactional id does not abort the open transaction of its predecessor",
        "oncelog_broker.coordinator.transaction.initialising",
        "    if metadata.state is TransactionState.ONGOING:\n        return metadata.fenced(now_ms, spare_producer_id, last_epoch=shown_epoch)\n",
        "    if metadata.state is TransactionState.ONGOING:\n        return metadata._replace(producer_epoch=metadata.producer_epoch + 1, state=TransactionState.EMPTY, partitions=frozenset())\n",
        PAYS,
        20,
    ),
    Defect(
        "lost-marker-counts",
        "a marker that could not be written counts as written",
        "oncelog_broker.coordinator.transaction.marker_queue",
        "        if code in NEEDS_NO_MARKER:\n            return self.gone(marker)\n",
        "        if code in NEEDS_NO_MARKER or code is not ErrorCode.UNKNOWN_TOPIC_OR_PARTITION:\n            return self.gone(marker)\n",
        ("payer-1", "payer-2", "zombie-1"),
        60,
        ("kill", "stop", "session ends"),
    ),
    Defect(
        "marker-not-replicated",
        "a transaction is complete when its markers are on the leaders alone",
        "oncelog_broker.coordinator.transaction.markers",
        "        return ErrorCode.NONE if offset < partition.high_watermark else partition.committed(offset + 1)\n",
        "        return ErrorCode.NONE\n",
        ("payer-1", "payer-2", "zombie-1"),
        20,
        ("kill", "isolation", "session ends"),
    ),
    Defect(
        "prepared-times-out",
        "a prepared transaction is aborted when a timeout has passed (KIP-939)",
        "oncelog_broker.coordinator.transaction.machine",
        "            timeout_ms = NO_TIMEOUT_MS\n",
        "            timeout_ms = 3_000\n",
        PREPARES,
        20,
        ("kill a client", "kill"),
    ),
    Defect(
        "kept-open-aborted",
        "the start of a successor aborts the prepared transaction that it has to end",
        "oncelog_broker.coordinator.transaction.initialising",
        "    if metadata.state is TransactionState.ONGOING and keeps_open:\n",
        "    if False:\n",
        PREPARES,
        20,
        ("kill a client", "kill"),
    ),
    Defect(
        "former-owner-ends",
        "the producer whose prepared transaction was taken over may end it",
        "oncelog_broker.coordinator.transaction.metadata",
        "        return asking == self.client and asking.epoch <= EXHAUSTED_EPOCH\n",
        "        return asking in (self.client, self.producer) and asking.epoch <= EXHAUSTED_EPOCH\n",
        HAUNTS,
        20,
    ),
    Defect(
        "partitions-replaced",
        "a transaction forgets its partitions when another one is added",
        "oncelog_broker.coordinator.transaction.metadata",
        "            partitions=self.partitions | added,\n",
        "            partitions=added,\n",
        PAYS,
        20,
    ),
)
