"""Deserializes keys and values of polled records.

The records of a poll do not count as read until the poll returns: a commit during the poll stores the positions that
the partitions had before the poll. If a record cannot be deserialized, or the poll is cancelled, the position returns
to the first record that is not returned, so that no record is skipped. If the application has moved or dropped a
partition during the poll, the position that the application has set is kept.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple, Self

from oncelog.cluster import TopicPartition
from oncelog.consumer.fetched import FetchedPartition
from oncelog.consumer.positions import PartitionPosition, Positions
from oncelog.consumer.records import ConsumerRecord
from oncelog.errors import ConfigError
from oncelog.group_offsets import OffsetAndMetadata
from oncelog.serialization.errors import RecordDeserializationError, SerializationError
from oncelog.serialization.serializer import Deserializer, SerializationContext

Raw = ConsumerRecord[bytes, bytes]


class Deserializing(NamedTuple):
    """The deserializers of a consumer. None means that keys or values stay bytes."""

    key: Deserializer[Any] | None
    value: Deserializer[Any] | None

    @classmethod
    def wanted(cls, key: Any, value: Any) -> Self | None:
        """Return the deserializers that the arguments of a consumer name; None if neither is given. Raises ConfigError
        for an argument that is not a Deserializer.
        """
        for given in (key, value):
            if given is not None and not isinstance(given, Deserializer):
                raise ConfigError(f"a deserializer must be a Deserializer of oncelog.serialization, not {given!r:.100}")
        return None if key is None and value is None else cls(key, value)

    async def polled(
        self, taken: dict[TopicPartition, list[Raw]], positions: Positions
    ) -> dict[TopicPartition, list[Any]]:
        """Return the records of a poll with their keys and values deserialized.

        If a record fails, the records before it are returned, and the next poll starts with the failed record. Raises
        SchemaRegistryError, and RecordDeserializationError if the first record fails; the positions are then unchanged.
        """
        done: dict[TopicPartition, list[Any]] = {}
        positions.withhold(taken)
        try:
            for partition, records in taken.items():
                returned: list[Any] = []
                try:
                    for raw in records:
                        returned.append(await self.record(raw))  # noqa: PERF401 - those before a failure are kept
                except Exception:
                    if returned:
                        done[partition] = returned
                    if done:
                        return done  # the next poll starts at the failed record and raises the error
                    raise
                done[partition] = returned
            return done
        except BaseException:
            done = {}  # the call is cancelled, so no caller gets these records
            raise
        finally:
            _go_back(taken, done, positions)

    async def iterated(self, raw: Raw, source: tuple[PartitionPosition, FetchedPartition], positions: Positions) -> Any:
        """Return one record of `async for`, deserialized. If that fails, the position returns to this record."""
        position, fetched = source
        partition = position.topic_partition
        positions.withheld = {partition: OffsetAndMetadata(raw.offset, "", fetched.epoch_before_last)}
        is_done = False
        try:
            record = await self.record(raw)
            is_done = True
            return record
        finally:
            is_withheld = positions.withheld.pop(partition, None) is not None
            if not is_done and is_withheld:
                position.seek(raw.offset, fetched.epoch_before_last)

    async def record(self, raw: Raw) -> ConsumerRecord[Any, Any]:
        """Return the record with key and value deserialized. Raises RecordDeserializationError, SchemaRegistryError,
        and exceptions of functions of the application.
        """
        key, value = raw.key, raw.value
        try:
            if self.key is not None and raw.key is not None:
                key = await self.key.deserialize(raw.key, SerializationContext(raw.topic, True, raw.headers))
            if self.value is not None and raw.value is not None:
                value = await self.value.deserialize(raw.value, SerializationContext(raw.topic, False, raw.headers))
        except SerializationError as error:
            raise RecordDeserializationError(raw, error) from error
        return raw._replace(key=key, value=value)


def _go_back(
    taken: dict[TopicPartition, list[Raw]], done: dict[TopicPartition, list[Any]], positions: Positions
) -> None:
    """Move the position of each partition to its first record that is not returned, so that commits use these
    positions.
    """
    withheld, positions.withheld = positions.withheld, {}
    for partition, records in taken.items():
        returned = len(done.get(partition, ()))
        before = withheld.get(partition)
        if returned == len(records) or before is None:
            continue
        positions.get(partition).seek(records[returned].offset, _epoch_before(records, returned, before))


def _epoch_before(records: Sequence[Raw], index: int, before: OffsetAndMetadata) -> int:
    return records[index - 1].leader_epoch if index else before.leader_epoch
