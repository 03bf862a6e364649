"""Parses and encodes the contents of the metadata nodes: the JSON of Kafka 3.x in ZooKeeper mode.

For invalid bytes, every `parse_*` function raises only `MalformedPayload`. Unknown fields are ignored, as in Kafka,
so that a later version may add fields.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import field
from functools import lru_cache
from typing import Any, Final, TypeVar

from oncelog_broker.runtime.steps import Steps, run_steps
from oncelog_protocol.light_classes import dataclass
from oncelog_protocol.uuids import uuid_from_string, uuid_to_string

_T = TypeVar("_T")

PARTITIONS_PER_STEP: Final = 500
"""The number of partitions of a topic that are decoded in one slice of work, before other tasks may run."""


class MalformedPayload(ValueError):
    """Raised if the content of a node is invalid; the message names the node and the fault."""

    def __init__(self, path: str, fault: str) -> None:
        super().__init__(f"{path} holds no valid metadata: {fault}")
        self.path = path


@dataclass(frozen=True, slots=True)
class Endpoint:
    """The address at which clients reach a broker through one listener. `security_protocol` is PLAINTEXT, SSL,
    SASL_PLAINTEXT or SASL_SSL.
    """

    listener: str
    host: str
    port: int
    security_protocol: str = "PLAINTEXT"


@dataclass(frozen=True, slots=True)
class BrokerRegistration:
    """The node `/brokers/ids/<id>`, version 5. `features` maps a feature name to the (min_version, max_version) that
    the broker supports.

    Kafka's registrations do not have the last three fields. `previous_epoch` is the broker epoch of the previous
    registration, -1 if there was none; `boot` identifies the machine's last start; `is_log_tail_kept` is False if the
    broker's last writes may be missing from its logs.
    """

    endpoints: tuple[Endpoint, ...]
    rack: str | None = None
    features: Mapping[str, tuple[int, int]] = field(default_factory=dict)
    timestamp_ms: int = 0
    previous_epoch: int = -1
    boot: str = ""
    is_log_tail_kept: bool = True


@dataclass(frozen=True, slots=True)
class Incarnation:
    """The node `/oncelog/incarnations/<id>`, which each registration of a broker writes. The node names the last
    registration before which the broker's logs may have lost records. Each registration copies this value from the
    previous registration. Without this copy, a broker that registers twice before the controller reads the node would
    seem to have lost no records.
    """

    is_log_tail_kept: bool = True
    """False if the broker may have lost the end of its logs just before this registration."""
    unsure_since: int = -1
    """The broker epoch of the last earlier registration that reported a possible loss; -1 if no registration did."""
    process: str = ""
    """The nonce of the process that registered, which its identity notes also have (`identity/note.py`). Releases
    before 0.2 write no nonce.
    """

    def unsure_epoch(self, written: int) -> int:
        """Return the broker epoch of the last registration with a possible loss of records; -1 if there was none. A
        partition state that was written before that epoch does not prove that the broker still has its records.
        `written` is the zxid of the node's last write, which is the broker epoch of the registration.
        """
        return self.unsure_since if self.is_log_tail_kept else written


@dataclass(frozen=True, slots=True)
class Founding:
    """The node `/oncelog/founding`, with the broker that founds the cluster, and the nonce of its process."""

    broker_id: int
    process: str = ""


@dataclass(frozen=True, slots=True)
class ReplicaAssignment:
    """The brokers of one partition, with the preferred leader first; the two other fields describe a reassignment in
    progress.
    """

    replicas: tuple[int, ...]
    adding_replicas: tuple[int, ...] = ()
    removing_replicas: tuple[int, ...] = ()

    @property
    def is_reassigned(self) -> bool:
        """Whether the partition is being reassigned."""
        return bool(self.adding_replicas or self.removing_replicas)

    @property
    def original(self) -> tuple[int, ...]:
        """The replicas before the reassignment."""
        return _without(self.replicas, self.adding_replicas)

    @property
    def target(self) -> tuple[int, ...]:
        """The replicas after the reassignment."""
        return _without(self.replicas, self.removing_replicas)


@dataclass(frozen=True, slots=True)
class TopicAssignment:
    """The node `/brokers/topics/<topic>`, version 3. `topic_id` has 16 bytes, or is None for a topic from before Kafka
    2.8.
    """

    topic_id: bytes | None
    partitions: Mapping[int, ReplicaAssignment]


@dataclass(frozen=True, slots=True)
class PartitionState:
    """The node `/brokers/topics/<topic>/partitions/<partition>/state`, version 1. `leader` is -1 while the partition
    has no leader."""

    leader: int
    leader_epoch: int
    isr: tuple[int, ...]
    controller_epoch: int
    leader_recovery_state: int = 0
    """The leader recovery state (KIP-704): 1 from an unclean election until the leader reports that its log is
    recovered, 0 otherwise. The value 0 is not written to the node.
    """


@dataclass(frozen=True, slots=True)
class ControllerRegistration:
    """The node `/controller`, version 1."""

    broker_id: int
    timestamp_ms: int


@dataclass(frozen=True, slots=True)
class ProducerIdBlock:
    """The node `/latest_producer_id_block`: the block that was allocated last; both ends are inclusive (S1)."""

    broker_id: int
    start: int
    end: int


def encode_broker(broker: BrokerRegistration) -> bytes:
    """Encode the registration of a broker. For readers of versions before 2, the fields host and port have the values
    of the first PLAINTEXT endpoint; without such an endpoint they are null and -1.
    """
    plain = next((e for e in broker.endpoints if e.security_protocol == "PLAINTEXT"), None)
    document: dict[str, Any] = {
        "version": 5,
        "host": None if plain is None else plain.host,
        "port": -1 if plain is None else plain.port,
        "jmx_port": -1,
        "timestamp": str(broker.timestamp_ms),
        "endpoints": [f"{e.listener}://{_bracketed(e.host)}:{e.port}" for e in broker.endpoints],
        "listener_security_protocol_map": {e.listener: e.security_protocol for e in broker.endpoints},
        "features": {n: {"min_version": low, "max_version": high} for n, (low, high) in broker.features.items()},
    }
    if broker.rack is not None:
        document["rack"] = broker.rack
    if broker.boot:
        document["boot"] = broker.boot
        document["previous_broker_epoch"] = broker.previous_epoch
        document["log_tail"] = "kept" if broker.is_log_tail_kept else "unsure"
    return _to_json(document)


def parse_broker(data: bytes, path: str) -> BrokerRegistration:
    document = _Document.parse(data, path)
    protocols = document.optional("listener_security_protocol_map", dict, {})
    features = {}
    for name, versions in document.optional("features", dict, {}).items():
        supported = _Document(versions, path)
        features[name] = (supported.integer("min_version"), supported.integer("max_version"))
    endpoints = tuple(_parse_endpoint(text, protocols, path) for text in document.required("endpoints", list))
    rack = document.optional("rack", str, "") or None
    return BrokerRegistration(
        endpoints,
        rack,
        features,
        document.digits("timestamp"),
        document.optional("previous_broker_epoch", int, -1),
        document.optional("boot", str, ""),
        document.optional("log_tail", str, "kept") == "kept",
    )


def encode_incarnation(incarnation: Incarnation) -> bytes:
    document: dict[str, Any] = {"version": 1, "log_tail": "kept" if incarnation.is_log_tail_kept else "unsure"}
    if incarnation.unsure_since >= 0:
        document["unsure_since"] = incarnation.unsure_since
    if incarnation.process:
        document["process"] = incarnation.process
    return _to_json(document)


def parse_incarnation(data: bytes, path: str) -> Incarnation:
    document = _Document.parse(data, path)
    return Incarnation(
        document.required("log_tail", str) == "kept",
        document.optional("unsure_since", int, -1),
        document.optional("process", str, ""),
    )


def encode_founding(founding: Founding) -> bytes:
    return _to_json({"version": 1, "broker": founding.broker_id, "process": founding.process})


def parse_founding(data: bytes, path: str) -> Founding:
    document = _Document.parse(data, path)
    return Founding(document.integer("broker"), document.optional("process", str, ""))


@dataclass(frozen=True, slots=True)
class StoreIdentity:
    """The node `/oncelog/store_id`, with the id of the metadata store. `replaces` is the id of the lost store, if the
    cluster was founded again from a broker's copy of its metadata; otherwise "".
    """

    id: str
    replaces: str = ""


def encode_store_identity(identity: StoreIdentity) -> bytes:
    document = {"version": 1, "id": identity.id}
    return _to_json({**document, "replaces": identity.replaces} if identity.replaces else document)


def parse_store_identity(data: bytes, path: str) -> StoreIdentity:
    document = _Document.parse(data, path)
    return StoreIdentity(document.required("id", str), document.optional("replaces", str, ""))


def encode_topic(topic: TopicAssignment) -> bytes:
    """Encode a topic node in version 3, or in version 2 for a topic without an id, as Kafka does."""
    return run_steps(topic_encoded_in_steps(topic))


def topic_encoded_in_steps(topic: TopicAssignment) -> Steps[bytes]:
    """Encode a topic node in slices of work, for a topic that may have thousands of partitions."""
    document: dict[str, Any] = {"version": 2 if topic.topic_id is None else 3}
    if topic.topic_id is not None:
        document["topic_id"] = uuid_to_string(topic.topic_id)
    partitions = sorted(topic.partitions)
    listed: list[str] = []
    adding: dict[str, tuple[int, ...]] = {}
    removing: dict[str, tuple[int, ...]] = {}
    for start in range(0, len(partitions), PARTITIONS_PER_STEP):
        some = partitions[start : start + PARTITIONS_PER_STEP]
        listed.append(_to_json({str(p): topic.partitions[p].replicas for p in some}).decode()[1:-1])
        for partition in some:
            assignment = topic.partitions[partition]
            if assignment.adding_replicas:
                adding[str(partition)] = assignment.adding_replicas
            if assignment.removing_replicas:
                removing[str(partition)] = assignment.removing_replicas
        yield None
    begun = _to_json(document).decode()[:-1]
    rest = _to_json({"adding_replicas": adding, "removing_replicas": removing}).decode()[1:]
    return f'{begun},"partitions":{{{",".join(listed)}}},{rest}'.encode()


def parse_topic(data: bytes, path: str) -> TopicAssignment:
    return run_steps(topic_in_steps(data, path))


def topic_in_steps(data: bytes, path: str) -> Steps[TopicAssignment]:
    """Parse a topic node in slices of work, for a topic that may have thousands of partitions; partitions on the same
    brokers share one assignment object. Raises MalformedPayload.
    """
    document = _Document.parse(data, path)
    yield None
    adding = document.brokers_by_partition("adding_replicas")
    removing = document.brokers_by_partition("removing_replicas")
    assignments: dict[int, ReplicaAssignment] = {}
    shared: dict[tuple[int, ...], ReplicaAssignment] = {}
    for text, brokers in document.optional("partitions", dict, {}).items():
        partition, replicas = _decimal(text, "partitions", path), _broker_ids(brokers, "partitions", path)
        if partition in adding or partition in removing:
            moving = ReplicaAssignment(replicas, adding.get(partition, ()), removing.get(partition, ()))
            assignments[partition] = moving
        else:
            assignments[partition] = shared.get(replicas) or shared.setdefault(replicas, ReplicaAssignment(replicas))
        if len(assignments) % PARTITIONS_PER_STEP == 0:
            yield None
    text = document.optional("topic_id", str, "")
    try:
        topic_id = uuid_from_string(text) if text else None
    except ValueError as error:
        raise MalformedPayload(path, f"topic_id: {error}") from error
    return TopicAssignment(topic_id, assignments)


def encode_mark(topic: TopicAssignment) -> bytes:
    """Encode the node `/admin/delete_topics/<topic>`, which has the id of the topic to delete. Kafka leaves this node
    empty.
    """
    return b"" if topic.topic_id is None else uuid_to_string(topic.topic_id).encode()


def encode_partition_state(state: PartitionState) -> bytes:
    # A format, because each broker encodes the states of all partitions for its copy of the metadata.
    recovery = f',"leader_recovery_state":{state.leader_recovery_state}' if state.leader_recovery_state else ""
    return (
        f'{{"controller_epoch":{state.controller_epoch},"leader":{state.leader},"version":1,'
        f'"leader_epoch":{state.leader_epoch},"isr":[{",".join(map(str, state.isr))}]{recovery}}}'
    ).encode()


def parse_partition_state(data: bytes, path: str) -> PartitionState:
    try:
        return _known_partition_state(data)
    except MalformedPayload:
        return _parsed_partition_state(data, path)  # raises the error with the path of this node


@lru_cache(maxsize=1024)
def _known_partition_state(data: bytes) -> PartitionState:
    """Return the parsed state. A broker without other brokers has thousands of partitions with the same content."""
    return _parsed_partition_state(data, "")


def _parsed_partition_state(data: bytes, path: str) -> PartitionState:
    document = _Document.parse(data, path)
    return PartitionState(
        leader=document.integer("leader"),
        leader_epoch=document.integer("leader_epoch"),
        isr=_broker_ids(document.required("isr", list), "isr", path),
        controller_epoch=document.integer("controller_epoch"),
        leader_recovery_state=document.optional("leader_recovery_state", int, 0),
    )


def encode_config(overrides: Mapping[str, str]) -> bytes:
    """Encode a node `/config/<entity type>/<entity>`, which has the settings that differ from the defaults."""
    return _to_json({"version": 1, "config": dict(sorted(overrides.items()))})


def parse_config(data: bytes, path: str) -> dict[str, str]:
    """Parse a settings node; a node without data has no settings, because it exists only as a parent of other nodes."""
    if not data:
        return {}
    overrides = _Document.parse(data, path).optional("config", dict, {})
    if not all(isinstance(value, str) for value in overrides.values()):
        raise MalformedPayload(path, "config: the values must be strings")
    return overrides


def encode_controller(controller: ControllerRegistration) -> bytes:
    return _to_json({"version": 1, "brokerid": controller.broker_id, "timestamp": str(controller.timestamp_ms)})


def parse_controller(data: bytes, path: str) -> ControllerRegistration:
    document = _Document.parse(data, path)
    return ControllerRegistration(document.integer("brokerid"), document.digits("timestamp"))


def encode_controller_epoch(epoch: int) -> bytes:
    return str(epoch).encode()


def parse_controller_epoch(data: bytes, path: str) -> int:
    return _decimal(data.decode("ascii", "replace"), "epoch", path)


def encode_cluster_id(cluster_id: str) -> bytes:
    """Encode the node `/cluster/id`. Its field `version` is a string, as in Kafka."""
    return _to_json({"version": "1", "id": cluster_id})


def parse_cluster_id(data: bytes, path: str) -> str:
    return _Document.parse(data, path).required("id", str)


def encode_producer_id_block(block: ProducerIdBlock) -> bytes:
    document = {"version": 1, "broker": block.broker_id, "block_start": str(block.start), "block_end": str(block.end)}
    return _to_json(document)


def parse_producer_id_block(data: bytes, path: str) -> ProducerIdBlock:
    document = _Document.parse(data, path)
    start, end = document.digits("block_start"), document.digits("block_end")
    if end < start:
        raise MalformedPayload(path, f"the block ends at {end}, before its start {start}")
    return ProducerIdBlock(document.integer("broker"), start, end)


class _Document:
    """A JSON object whose fields are validated when they are read."""

    __slots__ = ("_fields", "_path")

    def __init__(self, fields: object, path: str) -> None:
        if not isinstance(fields, dict):
            raise MalformedPayload(path, "not a JSON object")
        self._fields = fields
        self._path = path

    @classmethod
    def parse(cls, data: bytes, path: str) -> _Document:
        try:
            return cls(json.loads(data), path)
        except (ValueError, RecursionError) as error:
            if isinstance(error, MalformedPayload):
                raise
            raise MalformedPayload(path, f"not JSON ({error})") from error

    def required(self, name: str, kind: type[_T]) -> _T:
        if name not in self._fields:
            raise MalformedPayload(self._path, f"{name} is missing")
        value = self._fields[name]
        if not isinstance(value, kind) or isinstance(value, bool):
            raise MalformedPayload(self._path, f"{name} must be {kind.__name__}, not {value!r:.40}")
        return value

    def optional(self, name: str, kind: type[_T], default: _T) -> _T:
        return default if self._fields.get(name) is None else self.required(name, kind)

    def integer(self, name: str) -> int:
        return self.required(name, int)

    def digits(self, name: str) -> int:
        """Return an int from a field that Kafka writes as a string, since not all JSON parsers support 64-bit
        numbers."""
        return _decimal(self.required(name, str), name, self._path)

    def brokers_by_partition(self, name: str) -> dict[int, tuple[int, ...]]:
        ids = self.optional(name, dict, {})
        return {_decimal(p, name, self._path): _broker_ids(brokers, name, self._path) for p, brokers in ids.items()}


def _without(replicas: tuple[int, ...], others: tuple[int, ...]) -> tuple[int, ...]:
    return tuple(replica for replica in replicas if replica not in others) if others else replicas


def _broker_ids(value: object, name: str, path: str) -> tuple[int, ...]:
    if not isinstance(value, list) or not all(type(broker) is int for broker in value):
        raise MalformedPayload(path, f"{name} must list broker ids, not {value!r:.40}")
    return tuple(value)


def _decimal(text: str, name: str, path: str) -> int:
    """Parse a non-negative decimal number of at most 19 digits, the maximum for an int64."""
    if not (text.isascii() and text.isdecimal() and len(text) <= 19):
        raise MalformedPayload(path, f"{name} must be a decimal number, not {text!r:.40}")
    return int(text)


def _parse_endpoint(text: object, protocols: Mapping[str, object], path: str) -> Endpoint:
    """Parse `LISTENER://host:port`; an IPv6 host is in brackets. `protocols` maps listener names to security protocols;
    for a listener that is missing there, the name is also the protocol.
    """
    listener, separator, address = text.partition("://") if isinstance(text, str) else ("", "", "")
    host, colon, port = address.rpartition(":")
    protocol = protocols.get(listener, listener)
    if not (listener and separator and colon and isinstance(protocol, str)):
        raise MalformedPayload(path, f"endpoints: not LISTENER://host:port but {text!r:.80}")
    return Endpoint(listener, host.removeprefix("[").removesuffix("]"), _decimal(port, "endpoints", path), protocol)


def _bracketed(host: str) -> str:
    return f"[{host}]" if ":" in host else host


_encode: Final = json.JSONEncoder(separators=(",", ":"), ensure_ascii=False).encode


def _to_json(document: Mapping[str, Any]) -> bytes:
    return _encode(document).encode()
