"""One pass of a ShareFetch over the partitions of its session: reads their logs, and acquires records.

First the pass reads the logs from the first available record on. The pass acquires records only if it has read enough
bytes for a response, because acquired records must be sent. Another member may have acquired some of these records in
between; they are skipped.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import islice
from mmap import mmap
from typing import Final, NamedTuple

from oncelog_broker.config.broker_keys import FETCH_MAX_BYTES
from oncelog_broker.coordinator.share.share_key import ShareKey
from oncelog_broker.runtime.answers import Answer
from oncelog_broker.runtime.steps import Steps
from oncelog_broker.server.net.answer_queue import SCATTER_BYTES
from oncelog_broker.server.shares.acknowledgements import Asker, ShareRules, check_may_read
from oncelog_broker.server.shares.services import ShareContext
from oncelog_broker.sharing.acquisition import Acquired, LogBatch
from oncelog_broker.sharing.hosted_share_partition import HostedSharePartition
from oncelog_broker.sharing.share_sessions import SharedTopicPartition, ShareSession
from oncelog_protocol.errors import ErrorCode, KafkaError
from oncelog_protocol.messages.share_fetch import AcquireMode, ShareFetchRequest
from oncelog_protocol.records.batch import CorruptBatch, RecordBatch, batches

MAX_BATCHES: Final = 1_000
"""The maximum number of batches of one partition whose headers one pass reads; this takes one or two milliseconds."""
MAX_EMPTY_READS: Final = 4
"""The maximum number of reads of one partition in one pass, if the reads find no deliverable records, but only markers
and records of aborted transactions.
"""
NO_RECORDS: Final = memoryview(b"")


class Got(NamedTuple):
    """The result of a pass for one partition: `records` are complete batches that contain all `acquired` records; if
    the pass failed, the result has an error and no records.
    """

    records: memoryview = NO_RECORDS
    acquired: Sequence[Acquired] = ()
    error: KafkaError | None = None


class _Read(NamedTuple):
    """The records read from one log, from the offset `position` on; `aborted` lists the aborted transactions that have
    records there, as pairs of producer id and first offset.
    """

    where: SharedTopicPartition
    hosted: HostedSharePartition
    position: int
    records: memoryview
    aborted: Sequence[tuple[int, int]]


class ShareRead:
    """One pass over the partitions of a share session. `got` is the result; it is empty if the request must wait for
    more records. `waits_for` are the share partitions for whose records the request may wait. The wait ends when
    `missing_bytes` further bytes (at least 1) are available.
    """

    __slots__ = ("_asker", "_context", "_copies_left", "_partitions", "_remaining", "_request", "_rules", "_session",
                 "got", "missing_bytes", "waits_for")  # fmt: skip

    def __init__(
        self,
        request: ShareFetchRequest,
        asker: Asker,
        session: ShareSession,
        rules: ShareRules,
        context: ShareContext,
    ) -> None:
        self._request = request
        self._asker = asker
        self._session = session
        self._partitions = session.in_turn()
        self._rules = rules
        self._context = context
        self._remaining = min(request.max_bytes, context.services.config[FETCH_MAX_BYTES])
        self._copies_left = context.connection.copied_answer_bytes
        self.got: dict[SharedTopicPartition, Got] = {}
        self.waits_for: list[HostedSharePartition] = []
        self.missing_bytes = 1

    def find_all(self) -> Steps[list[Answer[HostedSharePartition | KafkaError]]]:
        """Return the share partitions of the session; some of them may have to be loaded first."""
        found: list[Answer[HostedSharePartition | KafkaError]] = []
        for where in self._partitions:
            found.append(self._find(where))
            yield None
        return found

    def _find(self, where: SharedTopicPartition) -> Answer[HostedSharePartition | KafkaError]:
        services = self._context.services
        try:
            check_may_read(where.topic_id, self._rules, self._context)
            partition = services.replicas.leader_by_id(*where)
        except KafkaError as error:
            return error.as_value()
        return services.share_partitions.find(ShareKey(self._asker.group_id, *where), partition)

    def read_all(self, found: Sequence[HostedSharePartition | KafkaError], *, is_last: bool) -> Steps[None]:
        """Read the logs, and acquire the records if they have enough bytes for a response, or if the fetch must not
        wait longer (`is_last`).
        """
        reads: list[_Read] = []
        size = 0
        for number, (where, hosted) in enumerate(zip(self._partitions, found, strict=True)):
            if isinstance(hosted, KafkaError):
                self.got[where] = Got(error=hosted)
                continue
            try:
                read = self._read(where, hosted, len(found) - number, is_first=not size)
            except KafkaError as error:
                self.got[where] = Got(error=error.as_value())
                continue
            self.waits_for.append(hosted)
            if read is not None:
                reads.append(read)
                size += len(read.records)
            yield None
        wanted = min(self._request.min_bytes, self._request.max_bytes)
        if size < wanted and not (is_last or self.got):
            self.missing_bytes = wanted - size
            return
        records_left = self._request.max_records
        for read in reads:
            if records_left <= 0:
                break
            acquired = yield from self._acquire(read, records_left)
            records_left -= acquired
            yield None

    def has_news(self) -> bool:
        """Return whether records have become available since the pass read the logs; possible only if other requests
        ran in between.
        """
        for hosted in self.waits_for:
            offset = hosted.next_offset()
            if not hosted.is_current or (offset is not None and offset < hosted.readable_end()):
                return self.missing_bytes == 1
        return False

    def _read(
        self, where: SharedTopicPartition, hosted: HostedSharePartition, partitions_left: int, *, is_first: bool
    ) -> _Read | None:
        """Read the log of a share partition from its first available record on; returns None if no record is available.
        Raises KafkaError.
        """
        if not hosted.is_current:
            raise KafkaError(ErrorCode.NOT_LEADER_OR_FOLLOWER)
        position = hosted.next_offset()
        end = hosted.readable_end()
        if position is None or position >= end or not (is_first or self._remaining > 0):
            return None
        reader, max_bytes, may_copy = (
            hosted.partition.log.reader,
            self._remaining // partitions_left,
            self._copies_left > 0,
        )
        aborted: list[tuple[int, int]] = []
        if hosted.settings().reads_committed:
            records, found = reader.read_committed(
                position, max_bytes, upper_bound=end, min_one_batch=is_first, may_copy=may_copy
            )
            aborted = [(entry.producer_id, entry.first_offset) for entry in found]
        else:
            records = reader.read(position, max_bytes, upper_bound=end, min_one_batch=is_first, may_copy=may_copy)
        size = len(records)
        if not size:
            return None
        if size < SCATTER_BYTES or not isinstance(records.obj, mmap):
            # Leave these few records to the next response: few records are copied, and the copy does not fit into the
            # memory budget.
            if not (may_copy or is_first):
                return None
            self._copies_left -= size
        self._remaining = max(0, self._remaining - size)
        return _Read(where, hosted, position, records, aborted)

    def _acquire(self, read: _Read, max_records: int) -> Steps[int]:
        """Acquire the records that were read. Returns the number of acquired records. If only markers and records of
        aborted transactions were read, these records are marked as done, and the log is read further.
        """
        sessions = self._context.services.share_partitions.sessions
        for _ in range(MAX_EMPTY_READS):
            if not sessions.is_open(self._session):  # the session has ended, so the member will get no response
                return 0
            log_batches: list[LogBatch] = []
            try:
                found = list(islice(batches(read.records), MAX_BATCHES))
                log_batches.extend(_log_batches(found, read.aborted))
            except CorruptBatch as error:
                # `extend` has kept the batches before the corrupt batch: acquire these first. The next read starts at
                # the corrupt batch, and then the member gets the error.
                if not log_batches:
                    self.got[read.where] = Got(error=KafkaError(ErrorCode.CORRUPT_MESSAGE, str(error)))
                    return 0
            exact = self._request.share_acquire_mode == AcquireMode.RECORD_LIMIT
            acquired = read.hosted.acquire(
                self._asker.member_id,
                read.position,
                log_batches,
                max_records,
                max(1, self._request.batch_size),
                exact=exact,
            )
            if acquired:
                self.got[read.where] = Got(_slice(read.records, found, acquired), acquired)
                self._count(read.hosted, len(self.got[read.where].records))
                return sum(last - first + 1 for first, last, _ in acquired)
            if read.hosted.next_offset() in (None, read.position):
                return 0
            yield None
            try:
                again = self._read(read.where, read.hosted, 1, is_first=True)
            except KafkaError as error:
                self.got[read.where] = Got(error=error.as_value())
                return 0
            if again is None:
                return 0
            read = again
        return 0

    def _count(self, hosted: HostedSharePartition, size: int) -> None:
        traffic = hosted.partition.traffic
        traffic.fetches += 1
        traffic.bytes_out += size


def _log_batches(found: Sequence[RecordBatch], aborted: Sequence[tuple[int, int]]) -> Iterator[LogBatch]:
    """Yield each batch with a flag: whether the member gets its records (False for markers and for records of aborted
    transactions). A producer's records are aborted from the first offset of an aborted transaction to its marker.

    Raises CorruptBatch at a batch with a wrong CRC whose records the member would not get: a flipped bit in the header
    can make records look like a marker, and the group would never get them. Members check all other batches.
    """
    starts = sorted(aborted, key=lambda transaction: transaction[1])
    open_producers: set[int] = set()
    index = 0
    for batch in found:
        last = batch.next_offset - 1
        while index < len(starts) and starts[index][1] <= last:
            open_producers.add(starts[index][0])
            index += 1
        is_aborted = batch.is_transactional and batch.producer_id in open_producers
        is_delivered = not (batch.is_control or is_aborted)
        if not (is_delivered or batch.crc_is_valid()):
            raise CorruptBatch(f"the CRC of {batch!r} is wrong")
        if batch.is_control:
            open_producers.discard(batch.producer_id)
        yield LogBatch(batch.base_offset, last, is_delivered=is_delivered)


def _slice(records: memoryview, found: Sequence[RecordBatch], acquired: Sequence[Acquired]) -> memoryview:
    """Return the batches from the first acquired record to the last one."""
    first, last = acquired[0].first, acquired[-1].last
    wanted = [batch for batch in found if batch.next_offset > first and batch.base_offset <= last]
    return records[wanted[0].start : wanted[-1].start + wanted[-1].size]
