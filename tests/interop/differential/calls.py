"""Sends the requests that scenarios make most often. Topics and transactional ids are given without the scenario's
prefix.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import Any, Final

from tests.interop.differential.batches import Producer
from tests.interop.differential.messages import Plain
from tests.interop.differential.side import PASSING, PATIENCE_SECONDS, PAUSE_SECONDS, ScenarioBroken, Side

from oncelog_protocol.api import ApiKey

LATEST: Final = -1
EARLIEST: Final = -2
MAX_TIMESTAMP: Final = -3
READ_COMMITTED: Final = 1
GROUP: Final = 0
TRANSACTION: Final = 1
"""The kinds of coordinators."""
WITHOUT_TRANSACTION_ERRORS: Final = PASSING - {51}
ANY_BYTES: Final = 1 << 20


# --- topics


def create(side: Side, name: str, partitions: int = 1, **configs: str | int) -> None:
    """Create a topic, and wait until it accepts writes.

    Configuration keys are written with underscores in place of dots. Raises ScenarioBroken.
    """
    topic = {
        "name": side.own(name),
        "num_partitions": partitions,
        "replication_factor": 1,
        "configs": [{"name": key.replace("_", "."), "value": str(value)} for key, value in configs.items()],
    }
    answer = side.get(ApiKey.CREATE_TOPICS, 7, {"topics": [topic], "timeout_ms": 30_000})
    if answer.topics[0].error_code:
        raise ScenarioBroken(f"{side.name}: topic {name}: {answer.topics[0]}")
    topic_id = bytes(answer.topics[0].topic_id)
    side.topic_ids[name] = topic_id
    side.plain.symbols.call("topic", topic_id, name)

    def is_ready(metadata: Any) -> bool:
        found = metadata.topics[0]
        led = [one for one in found.partitions if one.leader_id >= 0 and not one.error_code]
        return not found.error_code and len(led) == partitions

    asked = {"topics": [{"name": side.own(name)}], "allow_auto_topic_creation": False}
    side.get(ApiKey.METADATA, 12, asked, until=is_ready)
    list_offsets_quietly(side, name, partitions - 1)


def coordinator(side: Side, key: str, kind: int = TRANSACTION) -> None:
    """Wait until the coordinator of `key` responds without an error."""
    asked = {"key": side.own(key), "key_type": kind}
    side.get(ApiKey.FIND_COORDINATOR, 2, asked, until=lambda answer: answer.error_code == 0)


# --- producing


def produce(
    side: Side,
    topic: str,
    records: bytes | None,
    label: str = "",
    *,
    partition: int = 0,
    acks: int = -1,
    transactional_id: str | None = None,
    version: int = 11,
    **options: Any,
) -> Any:
    """Send a Produce request and record the response for the comparison. `transactional_id` is given without the
    prefix; "" remains empty.
    """
    where: Plain = {"topic_id": side.topic_ids[topic]} if version >= 13 else {"name": side.own(topic)}
    data = {**where, "partition_data": [{"index": partition, "records": records}]}
    own_id = side.own(transactional_id) if transactional_id else transactional_id
    asked = {"transactional_id": own_id, "acks": acks, "timeout_ms": 5000, "topic_data": [data]}
    return side.ask(ApiKey.PRODUCE, version, asked, label, **options)


def fill(side: Side, topic: str, batches: Sequence[bytes], partition: int = 0) -> None:
    """Write batches that must be accepted; the responses are not recorded. Raises ScenarioBroken."""
    for records in batches:
        data = {"name": side.own(topic), "partition_data": [{"index": partition, "records": records}]}
        answer = side.get(ApiKey.PRODUCE, 11, {"acks": -1, "timeout_ms": 5000, "topic_data": [data]})
        if answer.responses[0].partition_responses[0].error_code:
            raise ScenarioBroken(f"{side.name}: {topic}: {answer}")


def idempotent_producer(side: Side) -> Producer:
    """Return a new producer without a transactional id."""
    answer = side.get(ApiKey.INIT_PRODUCER_ID, 5, {"transaction_timeout_ms": 60_000})
    side.plain.producer(answer.producer_id)
    return Producer(answer.producer_id, answer.producer_epoch)


# --- transactions


def transactional_producer(
    side: Side, transactional_id: str, timeout_ms: int = 60_000, *, version: int = 5, enable2_pc: bool = False
) -> Producer:
    coordinator(side, transactional_id)
    asked = {
        "transactional_id": side.own(transactional_id),
        "transaction_timeout_ms": timeout_ms,
        "enable2_pc": enable2_pc,
    }
    answer = side.get(ApiKey.INIT_PRODUCER_ID, version, asked)
    if answer.error_code:
        raise ScenarioBroken(f"{side.name}: {answer}")
    side.plain.producer(answer.producer_id)
    return Producer(answer.producer_id, answer.producer_epoch, transactional_id)


def init(
    side: Side,
    transactional_id: str | None,
    label: str = "",
    *,
    timeout_ms: int = 60_000,
    producer_id: int = -1,
    epoch: int = -1,
    version: int = 5,
    enable2_pc: bool = False,
    keep_prepared_txn: bool = False,
    **options: Any,
) -> Any:
    asked = {
        "transactional_id": side.own(transactional_id) if transactional_id else transactional_id,
        "transaction_timeout_ms": timeout_ms,
        "producer_id": producer_id,
        "producer_epoch": epoch,
        "enable2_pc": enable2_pc,
        "keep_prepared_txn": keep_prepared_txn,
    }
    return side.ask(ApiKey.INIT_PRODUCER_ID, version, asked, label, **options)


def add_partitions(
    side: Side,
    producer: Producer,
    topics: dict[str, Sequence[int]],
    label: str = "",
    *,
    version: int = 3,
    **options: Any,
) -> Any:
    """Send AddPartitionsToTxn for one transaction, as clients send it (versions 0-3)."""
    asked = {
        "v3_and_below_transactional_id": side.own(producer.transactional_id or "") if producer.transactional_id else "",
        "v3_and_below_producer_id": producer.id,
        "v3_and_below_producer_epoch": producer.epoch,
        "v3_and_below_topics": [
            {"name": side.own(name), "partitions": list(partitions)} for name, partitions in topics.items()
        ],
    }
    return side.ask(ApiKey.ADD_PARTITIONS_TO_TXN, version, asked, label, **options)


def end_transaction(
    side: Side, producer: Producer, commit: bool = True, label: str = "", *, version: int = 4, **options: Any
) -> Any:
    asked = {
        "transactional_id": side.own(producer.transactional_id) if producer.transactional_id else "",
        "producer_id": producer.id,
        "producer_epoch": producer.epoch,
        "committed": commit,
    }
    return side.ask(ApiKey.END_TXN, version, asked, f"{'commit' if commit else 'abort'} {label}".strip(), **options)


def describe_transactions(side: Side, *transactional_ids: str, label: str = "") -> None:
    asked = {"transactional_ids": [side.own(one) if one else "" for one in transactional_ids]}
    side.ask(ApiKey.DESCRIBE_TRANSACTIONS, 0, asked, label)


def describe_producers(side: Side, topic: str, *partitions: int, label: str = "") -> None:
    asked = {"topics": [{"name": side.own(topic), "partition_indexes": list(partitions)}]}
    side.ask(ApiKey.DESCRIBE_PRODUCERS, 0, asked, label)


def await_transaction(side: Side, transactional_id: str, state: str) -> None:
    """Wait until the transaction has this state. Raises ScenarioBroken if the transaction does not reach this state
    within `PATIENCE_SECONDS`.
    """
    deadline = time.monotonic() + PATIENCE_SECONDS
    while time.monotonic() < deadline:
        answer = side.get(ApiKey.DESCRIBE_TRANSACTIONS, 0, {"transactional_ids": [side.own(transactional_id)]})
        if answer.transaction_states[0].transaction_state == state:
            return
        time.sleep(PAUSE_SECONDS)
    raise ScenarioBroken(f"{side.name}: {answer}")


def await_markers(side: Side, topic: str, partition: int = 0) -> None:
    """Wait until no transaction is open in a partition, since markers may be written after the response. Raises
    ScenarioBroken.
    """
    deadline = time.monotonic() + PATIENCE_SECONDS
    while time.monotonic() < deadline:
        ends = {list_offsets_quietly(side, topic, partition, isolation) for isolation in (0, READ_COMMITTED)}
        if len(ends) == 1:
            return
        time.sleep(PAUSE_SECONDS)
    raise ScenarioBroken(f"{side.name}: a transaction stays open in {topic}-{partition}")


def await_stable_end(side: Side, topic: str, offset: int, partition: int = 0) -> None:
    """Wait until the last stable offset of a partition has reached `offset`. Raises ScenarioBroken."""
    deadline = time.monotonic() + PATIENCE_SECONDS
    while list_offsets_quietly(side, topic, partition, READ_COMMITTED) < offset:
        if time.monotonic() > deadline:
            raise ScenarioBroken(f"{side.name}: the last stable offset of {topic}-{partition} stays below {offset}")
        time.sleep(PAUSE_SECONDS)


# --- reading


def fetch(
    side: Side,
    topic: str,
    offset: int = 0,
    label: str = "",
    *,
    partition: int = 0,
    isolation: int = 0,
    version: int = 12,
    max_bytes: int = ANY_BYTES,
    partition_max_bytes: int = ANY_BYTES,
    leader_epoch: int = -1,
    last_epoch: int = -1,
) -> Any:
    wanted = {
        "partition": partition,
        "fetch_offset": offset,
        "current_leader_epoch": leader_epoch,
        "last_fetched_epoch": last_epoch,
        "partition_max_bytes": partition_max_bytes,
    }
    where = {"topic": side.own(topic), "topic_id": side.topic_ids.get(topic, bytes(16)), "partitions": [wanted]}
    asked = {"max_bytes": max_bytes, "isolation_level": isolation, "topics": [where], "session_epoch": -1}
    return side.ask(ApiKey.FETCH, version, asked, f"{topic} from {offset} {label}".strip())


def list_offsets(
    side: Side,
    topic: str,
    timestamp: int,
    label: str = "",
    *,
    partition: int = 0,
    isolation: int = 0,
    version: int = 9,
    leader_epoch: int = -1,
    replica_id: int = -1,
) -> Any:
    wanted = {"partition_index": partition, "timestamp": timestamp, "current_leader_epoch": leader_epoch}
    asked = {
        "replica_id": replica_id,
        "isolation_level": isolation,
        "topics": [{"name": side.own(topic), "partitions": [wanted]}],
    }
    return side.ask(ApiKey.LIST_OFFSETS, version, asked, label)


def list_offsets_quietly(
    side: Side, topic: str, partition: int = 0, isolation: int = 0, timestamp: int = LATEST
) -> int:
    """Return the offset from ListOffsets; the response is not recorded for the comparison. Raises ScenarioBroken."""
    wanted = {"partition_index": partition, "timestamp": timestamp}
    asked = {
        "replica_id": -1,
        "isolation_level": isolation,
        "topics": [{"name": side.own(topic), "partitions": [wanted]}],
    }
    (found,) = side.get(ApiKey.LIST_OFFSETS, 7, asked).topics[0].partitions
    if found.error_code:
        raise ScenarioBroken(f"{side.name}: {topic}-{partition}: {found}")
    return int(found.offset)


def delete_records(
    side: Side, topic: str, offset: int, *, partition: int = 0, version: int = 2, label: str = ""
) -> None:
    wanted = [{"partition_index": partition, "offset": offset}]
    asked = {"topics": [{"name": side.own(topic), "partitions": wanted}], "timeout_ms": 5000}
    side.ask(ApiKey.DELETE_RECORDS, version, asked, label or f"{topic} to {offset}")
