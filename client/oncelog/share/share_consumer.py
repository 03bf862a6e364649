"""The public consumer of share groups (KIP-932), whose members share records instead of partitions."""

from __future__ import annotations

import asyncio
import logging
import uuid
from collections.abc import Callable, Iterable, Mapping
from functools import partial
from typing import Any, Final, Generic, Unpack, cast

from oncelog.cluster import NO_NODE, Broker, TopicPartition
from oncelog.config import ShareConsumerConfig, load
from oncelog.connection.pool import ConnectionPool
from oncelog.consumer.deserializing import Deserializing
from oncelog.consumer.records import K, V
from oncelog.errors import ClientClosed, CorruptRecords, ErrorCode, KafkaError, error_for
from oncelog.lifecycle import Lifecycle
from oncelog.metadata.metadata import Metadata
from oncelog.serialization.errors import RecordDeserializationError, SchemaRegistryError
from oncelog.serialization.serializer import Deserializer
from oncelog.share.acknowledgements import Acknowledgements
from oncelog.share.share_decoding import decode
from oncelog.share.share_deserializing import deserialized
from oncelog.share.share_membership import ShareMembership
from oncelog.share.share_node import Outcomes, PartitionData, ShareNode, merged
from oncelog.share.share_records import ShareRecord
from oncelog.share.share_request import IdPartition, Said
from oncelog.typed_options import ShareConsumerOptions
from oncelog_protocol.messages.share_fetch import AcknowledgeType, ShareFetchResponse
from oncelog_protocol.uuids import uuid_to_string

logger = logging.getLogger(__name__)

CLOSE_TIMEOUT_MS: Final = 30_000
MAX_UNREPORTED: Final = 100
"""Maximum number of fetches whose outcomes are stored for the next commit."""
RETRY_S: Final = 0.1
"""Seconds to wait before fetching a partition again after a broker has refused it."""
ELSEWHERE: Final = frozenset(
    {
        ErrorCode.NOT_LEADER_OR_FOLLOWER,
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        ErrorCode.UNKNOWN_TOPIC_ID,
        ErrorCode.KAFKA_STORAGE_ERROR,
    }
)
"""Errors of a partition that a metadata refresh may resolve."""


class ShareConsumer(Lifecycle, Generic[K, V]):
    """Reads records of topics together with the other members of a share group.

        async with ShareConsumer("127.0.0.1:9092", group_id="work", share_acknowledgement_mode="explicit") as consumer:
            consumer.subscribe(["jobs"])
            while True:
                for record in await consumer.poll(1_000):
                    do(record.value)
                    record.accept()

    Only one member can acquire a record at the same time, and its acquisition lock expires after a time
    (share.record.lock.duration.ms of the group). Records are delivered at least once, and in no order: a record that is
    not accepted is delivered again, to any member, up to share.delivery.count.limit times.

    In the mode "implicit" (the default), the next poll, `commit` and `close` accept all records of the last poll that
    the application has not acknowledged. In the mode "explicit", the application acknowledges each record before the
    next poll; a poll with an unacknowledged record raises ValueError. Acknowledgements are sent with the next poll;
    `commit` sends them
    immediately and returns their outcomes. Only one task may poll at the same time.

    Keys and values are bytes, or the objects that `key_deserializer` and `value_deserializer` return
    (`oncelog.serialization`): a `ShareConsumer[str, Order]` returns `ShareRecord[str, Order]`. A record that cannot be
    deserialized makes `poll` raise RecordDeserializationError, whose `record` is the ShareRecord with key and value as
    bytes: the application may `reject` or `release` it. If the application does neither, the next poll, `commit` or
    `close` releases the record in both modes, so that it is delivered again, up to the group's limit.
    """

    def __init__(
        self,
        bootstrap_servers: str | Iterable[str],
        *,
        key_deserializer: Deserializer[K] | None = None,
        value_deserializer: Deserializer[V] | None = None,
        **options: Unpack[ShareConsumerOptions],
    ) -> None:
        """Raises ConfigError for an invalid option."""
        self._deserializing = Deserializing.wanted(key_deserializer, value_deserializer)
        self.config = load(ShareConsumerConfig, bootstrap_servers, options)
        self.member_id = uuid_to_string(uuid.uuid4().bytes)
        self._is_explicit = self.config.share_acknowledgement_mode == "explicit"
        self._acks: dict[IdPartition, Acknowledgements] = {}
        self._names: dict[IdPartition, TopicPartition] = {}
        self._ids: dict[TopicPartition, IdPartition] = {}
        """Partition -> topic id and partition number, for the partitions from which records have arrived."""
        self._homes: dict[IdPartition, int] = {}
        """Partition -> id of the node in whose share session the partition's records were acquired."""
        self._nodes: dict[int, ShareNode] = {}
        self._refused_until: dict[IdPartition, float] = {}
        self._ready: list[ShareRecord] = []
        """Acquired records that no poll has returned yet, with keys and values as bytes."""
        self._undecodable: list[ShareRecord] = []
        """Records that the application knows from a RecordDeserializationError since the last poll or commit."""
        self._unreported: list[Outcomes] = []
        """Outcomes of acknowledgements that were sent with fetches, for the next `commit`."""
        self._error: KafkaError | None = None
        self._news = asyncio.Event()
        self._pool: ConnectionPool | None = None
        self._is_closed = False

    # life

    async def start(self) -> None:
        """Connect to the cluster. Raises KafkaError if no broker can be reached."""
        if self._is_closed or self._pool is not None:
            raise ClientClosed("a consumer can be started only once")
        self._pool = ConnectionPool(self.config)
        self._metadata = Metadata(self._pool, self.config)
        self._membership = ShareMembership(self.config, self._metadata, self.member_id, self._news.set)
        self._metadata.in_use.append(lambda: self._membership.topics)
        self._metadata.listeners.append(self._news.set)
        try:
            await self._metadata.refresh()
        except BaseException:
            await self.close()
            raise

    async def close(self, timeout_ms: int = CLOSE_TIMEOUT_MS) -> None:
        """Send the pending acknowledgements, release all other records, leave the group, and close the connections.

        Requests may take `timeout_ms`; acknowledgements that could not be sent are released when the locks expire. A
        second call does nothing.
        """
        if self._is_closed:
            return
        self._is_closed = True
        if self._pool is None:
            return
        try:
            self._release_undecodable()
            if not self._is_explicit:
                self._accept_rest()
            for record in self._ready:  # release these records, which the application has not seen
                self._acks[self._where(record)].say(record.offset, AcknowledgeType.RELEASE)
            await self._end_fetches()
            try:
                async with asyncio.timeout(timeout_ms / 1000):
                    await asyncio.gather(*(self._close_session(node) for node in self._nodes.values()))
                    await self._membership.leave(timeout_ms / 1000)
            except TimeoutError:
                logger.warning("share group %s: not left within %d ms", self.config.group_id, timeout_ms)
        finally:
            await self._membership.close()
            await self._metadata.close()
            await self._pool.close()

    async def _close_session(self, node: ShareNode) -> None:
        if node.is_open:
            await node.acknowledge(self._take(node.node_id), closes=True)

    async def _end_fetches(self) -> None:
        fetches = [node.fetching for node in self._nodes.values() if node.fetching is not None]
        if fetches:
            # Wait for the fetches in flight, because their records must be released; a fetch takes at most
            # fetch_max_wait_ms.
            await asyncio.gather(*fetches, return_exceptions=True)
        for record in self._ready:
            acks = self._acks[self._where(record)]
            if record.offset in acks.unsaid:
                acks.say(record.offset, AcknowledgeType.RELEASE)

    # methods for the choice of topics

    def subscribe(self, topics: Iterable[str]) -> None:
        """Read these topics instead of the earlier subscription. Raises ClientClosed, and ValueError if no topic is
        given.
        """
        self._check_open()
        names = tuple(dict.fromkeys([topics] if isinstance(topics, str) else topics))
        if not names:
            raise ValueError("subscribe to at least one topic, or close the consumer")
        self._membership.subscribe(names)
        self._metadata.request_refresh()

    def assignment(self) -> set[TopicPartition]:
        """Return the partitions that this member currently reads together with others."""
        return {name for where in self._membership.assignment if (name := self._name(where)) is not None}

    # records

    async def poll(self, timeout_ms: int = 0) -> list[ShareRecord[K, V]]:
        """Return records that were acquired for this member, from each broker approximately max_poll_records at most;
        return an empty list after `timeout_ms`.

        Raises KafkaError if the group refuses the member, and CorruptRecords for unreadable records, which were then
        rejected. In the mode "explicit", raises ValueError while a record of the last poll is not acknowledged.

        If a record cannot be deserialized, the records before it are returned; raises RecordDeserializationError if it
        is the first, after which the next poll continues with the next record. Raises SchemaRegistryError, after which
        the next poll tries again.
        """
        self._check_open()
        self._release_undecodable()
        if self._is_explicit:
            left = sum(len(acks.unsaid) for acks in self._acks.values()) - len(self._ready)
            if left > 0:
                raise ValueError(f"{left} records of the last poll were not acknowledged")
        else:
            self._accept_rest()
        loop = asyncio.get_running_loop()
        deadline = loop.time() + timeout_ms / 1000
        while True:
            self._raise_error()
            if self._ready:
                return await self._taken()
            self._news.clear()
            retry_s = self._send_fetches(loop.time())
            try:
                async with asyncio.timeout_at(min(deadline, loop.time() + retry_s)):
                    await self._news.wait()
            except TimeoutError:
                if not self._ready and loop.time() >= deadline:
                    return []

    def acknowledge(self, record: ShareRecord[Any, Any], kind: AcknowledgeType = AcknowledgeType.ACCEPT) -> None:
        """Acknowledge a record with `kind`. Raises ValueError for a record that is already acknowledged."""
        self._acks[self._where(record)].say(record.offset, kind)

    async def commit(self, timeout_ms: int | None = None) -> dict[TopicPartition, KafkaError | None]:
        """Send the pending acknowledgements, and return partition -> outcome of the acknowledgements since the last
        commit. None means that the acknowledgements are stored; an error means that the records may be delivered again.

        Raises RequestTimedOut after `timeout_ms` (default_api_timeout_ms).
        """
        self._check_open()
        self._release_undecodable()
        if not self._is_explicit:
            self._accept_rest()
        seconds = (self.config.default_api_timeout_ms if timeout_ms is None else timeout_ms) / 1000
        try:
            async with asyncio.timeout(seconds):
                nodes = {self._homes[where] for where, acks in self._acks.items() if not acks.is_empty}
                results = await asyncio.gather(*(self._commit_at(self._node(node_id)) for node_id in sorted(nodes)))
        except TimeoutError:
            raise error_for(ErrorCode.REQUEST_TIMED_OUT, f"acknowledgements not stored within {seconds:g} s") from None
        earlier, self._unreported = self._unreported, []
        found = merged([*earlier, *results])
        return {self._names[where]: error for where, error in found.items()}

    async def _commit_at(self, node: ShareNode) -> Outcomes:
        results = []
        said = self._take(node.node_id)
        if said:
            results.append(await node.acknowledge(said))
        renewals = {
            where: kinds
            for where, acks in self._acks.items()
            if self._homes[where] == node.node_id and (kinds := acks.take_renewals())
        }
        if renewals:
            results.append(await node.acknowledge(renewals))
        return merged(results)

    # inside

    async def _taken(self) -> list[ShareRecord[K, V]]:
        """Remove the acquired records, and return them deserialized. A record that fails is removed when its error is
        raised, and the records after it remain; if the call is cancelled, all remain.
        """
        ready = list(self._ready)
        if self._deserializing is None:
            self._ready.clear()
            return cast("list[ShareRecord[K, V]]", ready)
        taken: list[ShareRecord[K, V]] = []
        try:
            for raw in ready:
                taken.append(await deserialized(raw, self._deserializing))  # noqa: PERF401 - keeps those before a failure
        except RecordDeserializationError:
            if not taken:
                del self._ready[0]
                self._undecodable.append(ready[0])
                raise
        except SchemaRegistryError:
            if not taken:
                raise
        del self._ready[: len(taken)]
        return taken

    def _release_undecodable(self) -> None:
        """Release the records that could not be deserialized and that the application has not acknowledged."""
        records, self._undecodable = self._undecodable, []
        for record in records:
            acks = self._acks[self._where(record)]
            if record.offset in acks.unsaid:
                acks.say(record.offset, AcknowledgeType.RELEASE)

    def _accept_rest(self) -> None:
        waiting = {(self._where(record), record.offset) for record in self._ready}
        for where, acks in self._acks.items():
            for offset in list(acks.unsaid):
                if (where, offset) not in waiting:
                    acks.say(offset, AcknowledgeType.ACCEPT)

    def _take(self, node_id: int) -> dict[IdPartition, Mapping[int, AcknowledgeType]]:
        """Remove and return the acknowledgements to send to a node."""
        said: dict[IdPartition, Mapping[int, AcknowledgeType]] = {}
        for where, acks in self._acks.items():
            if self._homes[where] == node_id and (kinds := acks.take()):
                said[where] = kinds
        return said

    def _send_fetches(self, now: float) -> float:
        """Fetch from every node without a fetch in flight. Returns the seconds until the next check."""
        wanted: dict[int, list[IdPartition]] = {}
        retry_s = 60.0
        for where in sorted(self._membership.assignment):
            name = self._name(where)
            if name is None:
                self._metadata.request_refresh()
                retry_s = RETRY_S
                continue
            until = self._refused_until.get(where, 0.0)
            leader = self._metadata.cluster.leader(*name)
            if until > now or leader == NO_NODE:
                if leader == NO_NODE:
                    self._metadata.request_refresh()
                retry_s = min(retry_s, max(until - now, RETRY_S))
                continue
            wanted.setdefault(leader, []).append(where)
        said = {self._homes[where] for where, acks in self._acks.items() if not acks.is_empty}
        for node_id in {*wanted, *said}:
            node = self._node(node_id)
            if node.fetching is not None:
                continue
            if node_id not in wanted and not node.is_open:
                lost = error_for(ErrorCode.SHARE_SESSION_NOT_FOUND, "the session with the broker was lost")
                self._report(dict.fromkeys(self._take(node_id), lost))
                continue
            take: Callable[[], Said] = partial(self._take, node_id)
            node.fetching = asyncio.create_task(
                node.fetch(wanted.get(node_id, ()), take, partial(self._fetched, node_id))
            )
            node.fetching.add_done_callback(partial(self._fetch_done, node))
        return retry_s

    def _report(self, outcomes: Outcomes) -> None:
        """Store outcomes for the next commit; the number is limited, because an application may never commit."""
        self._unreported.append(outcomes)
        del self._unreported[:-MAX_UNREPORTED]

    def _fetch_done(self, node: ShareNode, task: asyncio.Task[tuple[Outcomes, KafkaError | None]]) -> None:
        node.fetching = None
        self._news.set()
        if task.cancelled():
            return
        failure = task.exception()
        if failure is not None:
            logger.error("share fetch failed", exc_info=failure)
            self._error = self._error or KafkaError(ErrorCode.UNKNOWN_SERVER_ERROR, repr(failure))
            return
        outcomes, error = task.result()
        self._report(outcomes)
        if error is not None:
            logger.info("share fetch from node %d: %s", node.node_id, error.message)
            self._metadata.request_refresh()
            now = asyncio.get_running_loop().time()
            for where, name in self._names.items():
                if self._metadata.cluster.leader(*name) == node.node_id:
                    self._refused_until[where] = now + RETRY_S

    def _fetched(self, node_id: int, where: IdPartition, data: PartitionData, response: ShareFetchResponse) -> None:
        name = self._name(where)
        if name is None:
            return
        if data.error_code:
            self._refused(where, name, data, response)
        if not data.acquired_records or data.records is None:
            return
        decoded = decode(
            name,
            memoryview(data.records),
            data.acquired_records,
            check_crcs=self.config.check_crcs,
            max_decompressed_bytes=self.config.max_decompressed_bytes,
        )
        acks = self._acks.setdefault(where, Acknowledgements())
        self._ids[name] = where
        self._homes[where] = node_id
        acks.say_of_no_records(decoded.gaps, AcknowledgeType.GAP)
        acks.say_of_no_records(decoded.unreadable, AcknowledgeType.REJECT)
        if decoded.error is not None:
            self._error = self._error or CorruptRecords(
                ErrorCode.CORRUPT_MESSAGE, f"{name}: {len(decoded.unreadable)} records were rejected: {decoded.error}"
            )
        acks.acquired(record.offset for record, _ in decoded.records)
        self._ready += [ShareRecord(record, count, self.acknowledge) for record, count in decoded.records]

    def _refused(
        self, where: IdPartition, name: TopicPartition, data: PartitionData, response: ShareFetchResponse
    ) -> None:
        code = ErrorCode.of(data.error_code)
        self._refused_until[where] = asyncio.get_running_loop().time() + RETRY_S
        if code is ErrorCode.TOPIC_AUTHORIZATION_FAILED:
            self._error = self._error or error_for(code, f"{name}: {data.error_message or code.meaning}")
        elif code in ELSEWHERE:
            leader = data.current_leader
            brokers = [Broker(each.node_id, each.host, each.port, each.rack) for each in response.node_endpoints]
            if brokers and leader.leader_id >= 0:
                self._metadata.learn_leader(*name, leader.leader_id, leader.leader_epoch, brokers)
                self._refused_until.pop(where, None)
            else:
                self._metadata.request_refresh()

    def _name(self, where: IdPartition) -> TopicPartition | None:
        known = self._names.get(where)
        if known is not None:
            return known
        topic_id, index = where
        for name, topic in self._metadata.cluster.topics.items():
            if topic.topic_id == topic_id:
                found = self._names[where] = TopicPartition(name, index)
                return found
        return None

    def _where(self, record: ShareRecord[Any, Any]) -> IdPartition:
        where = self._ids.get(record.topic_partition)
        if where is None:
            raise ValueError(f"the record at {record.topic_partition} offset {record.offset} is not this consumer's")
        return where

    def _node(self, node_id: int) -> ShareNode:
        node = self._nodes.get(node_id)
        if node is None:
            assert self._pool is not None
            node = self._nodes[node_id] = ShareNode(node_id, self._pool, self.config, self.member_id)
        return node

    def _raise_error(self) -> None:
        if self._membership.error is not None:
            error, self._membership.error = self._membership.error, None
            raise error
        if self._error is not None and not self._ready:
            problem, self._error = self._error, None
            raise problem

    def _check_open(self) -> None:
        if self._is_closed or self._pool is None:
            raise ClientClosed("the consumer is closed, or was not started")
