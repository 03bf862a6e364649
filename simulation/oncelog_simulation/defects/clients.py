"""Defects of oncelog's own clients."""

from __future__ import annotations

from typing import Final

from oncelog_simulation.defects.defect import Defect

WRITES: Final = ("writer-1", "writer-2", "reader-committed")
PAYS: Final = ("payer-1", "payer-2", "reader-committed", "reader-uncommitted")
PIPES: Final = ("writer-1", "writer-2", "pipeline-1", "pipeline-2")

FAULTS: Final = ("kill", "pause", "partition", "isolation", "resets", "slow links", "session ends")
"""The faults that strike while these defects are hunted, unless a defect names its own faults."""

DEFECTS: Final = (
    Defect(
        "aborted-records-handed-out",
        "a read_committed consumer hands out aborted records",
        "oncelog.consumer.isolation",
        "        return batch.is_transactional and batch.producer_id in self._aborting\n",
        "        return False\n",
        PAYS,
        10,
    ),
    Defect(
        "aborting-for-good",
        "after an aborted transaction a consumer skips all later records of its producer",
        "oncelog.consumer.isolation",
        "                    self._aborting.discard(batch.producer_id)\n",
        "                    pass\n",
        PAYS,
        20,
    ),
    Defect(
        "lost-answer-taken-for-refusal",
        "a batch whose answer is lost counts as not written: its numbers are used again",
        "oncelog.producer.sender",
        "            for batch in batches:\n                batch.is_maybe_written = True\n                self._failed(batch, failure, node_id=node_id)\n",
        "            for batch in batches:\n                self._failed(batch, failure, node_id=node_id)\n",
        WRITES,
        200,
    ),
    Defect(
        "given-up-numbers-used-again",
        "the numbers of a batch that was given up, and may be written, go to the next one",
        "oncelog.producer.sequences",
        "        if batch.is_maybe_written:\n            self.is_unresolved = True\n        else:\n            self.has_gap = True\n",
        "        self.has_gap = True\n",
        WRITES,
        200,
    ),
    Defect(
        "not-rewound",
        "consume-process-produce continues after the records that an aborted transaction has consumed",
        "oncelog.consume_process_produce",
        "        consumer.seek_to_committed(partition, polled[partition][0].offset)\n",
        "        pass\n",
        PIPES,
        40,
    ),
    Defect(
        "commits-without-flush",
        "a transaction is committed before its records are acknowledged",
        "oncelog.producer.transactions",
        "        manager = self.manager\n        await self._flush()\n        await self._quiet()\n",
        "        manager = self.manager\n        await self._quiet()\n",
        PAYS,
        20,
    ),
    Defect(
        "begins-one-too-far",
        "a consumer begins one record after the committed offset of its group",
        "oncelog.consumer.offset_reset",
        "                position.start_at(committed[partition].offset, committed[partition].leader_epoch)\n",
        "                position.start_at(committed[partition].offset + 1, committed[partition].leader_epoch)\n",
        PIPES,
        20,
    ),
    Defect(
        "nobody-commits",
        "offsets are committed without saying which member of the group has consumed the records",
        "oncelog.consume_process_produce",
        "                await producer.send_offsets(offsets, group)\n",
        '                await producer.send_offsets(offsets, ConsumerGroupMetadata(group.group_id, -1, "", None))\n',
        PIPES,
        100,
    ),
    Defect(
        "prepares-without-flush",
        "a transaction is prepared before its records are acknowledged (KIP-939)",
        "oncelog.producer.transactions",
        '                await self._flush()\n                await self._quiet()\n        except TimeoutError:\n            raise self._timed_out(\n                "not all',
        '                await self._quiet()\n        except TimeoutError:\n            raise self._timed_out(\n                "not all',
        ("two-phase-1", "two-phase-2", "reader-committed"),
        20,
        ("kill a client", "slow links"),
    ),
    Defect(
        "late-fetch-after-seek",
        "a consumer uses the records of a Fetch that it sent before its position was changed",
        "oncelog.consumer.fetcher",
        "        if position.seeks != seeks or not self._positions.owns(position):\n",
        "        if not self._positions.owns(position):\n",
        ("pipeline-1", "pipeline-2"),
        30,
        ("kill a client", "slow links", "pause"),
    ),
)
