"""Every declared message is compared with Kafka's own definition, field by field and version by version.

`tests/data/kafka-messages.tsv` has the content of Kafka's definitions (`tests/support/kafka_facts.py`). On a machine
that has Kafka's definition files, another test compares the table with these files.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

import pytest
from tests.support.kafka_facts import DEFINITIONS, EMPTY_TEXT, ROOT, TABLE, Fact, Facts, facts_in, table_of

from oncelog_protocol import consumer_protocol
from oncelog_protocol.api import ApiKey, request_type, response_type
from oncelog_protocol.coordinator_records import (
    consumer_groups,
    consumer_offsets,
    share_group_state,
    share_groups,
    streams_groups,
    transaction_state,
)
from oncelog_protocol.messages import headers
from oncelog_protocol.messages.fetch import FetchRequest
from oncelog_protocol.schema import OWN_TAGS, ZERO_UUID, FieldSchema, fields_of, schema_of
from oncelog_protocol.versions import NO_VERSIONS, VersionRange, version_range

MESSAGE_MODULES = {path.stem for path in (ROOT / "protocol/oncelog_protocol/messages").glob("[!_]*.py")}
WITHOUT_ZOOKEEPER = {ApiKey.CONTROLLED_SHUTDOWN}
"""Messages that Kafka 4 removed together with ZooKeeper; they are declared as in Kafka 3.9."""
AMONG_BROKERS = {ApiKey.ENVELOPE}
"""Messages that the table lacks; tests/unit/protocol/test_envelope.py checks their bytes."""
TELEMETRY = {ApiKey.GET_TELEMETRY_SUBSCRIPTIONS, ApiKey.PUSH_TELEMETRY}
"""Messages that the table lacks; tests/unit/protocol/test_telemetry_messages.py checks their bytes."""
ELSEWHERE = WITHOUT_ZOOKEEPER | AMONG_BROKERS | TELEMETRY
NEWER = {"next_producer_epoch"}
"""Fields of Kafka that are newer than the table: tag 3 of TransactionLogValue (KIP-939)."""
DECLARED_KEYS = [key for key in ApiKey if key.name.lower() in MESSAGE_MODULES and key not in ELSEWHERE]
DECLARED: list[type] = [headers.RequestHeader, headers.ResponseHeader]
DECLARED += [message_type(key) for key in DECLARED_KEYS for message_type in (request_type, response_type)]
DECLARED += [
    consumer_offsets.OffsetCommitKey,
    consumer_offsets.OffsetCommitValue,
    consumer_offsets.GroupMetadataKey,
    consumer_offsets.GroupMetadataValue,
    *(message for name, message in vars(consumer_groups).items() if name.startswith("ConsumerGroup")),
    *(message for name, message in vars(share_groups).items() if name.startswith("ShareGroup")),
    *(message for name, message in vars(streams_groups).items() if name.startswith("StreamsGroup")),
    *(message for name, message in vars(share_group_state).items() if name.startswith("Share")),
    consumer_protocol.ConsumerProtocolAssignment,
    consumer_protocol.ConsumerProtocolSubscription,
    transaction_state.TransactionLogKey,
    transaction_state.TransactionLogValue,
]
KAFKAS = facts_in(TABLE.read_text())

TYPE_NAMES = {"bool": "boolean"}
IMPLICIT_DEFAULTS: dict[str, Any] = {
    "bool": False,
    "string": "",
    "bytes": b"",
    "records": None,
    "uuid": ZERO_UUID,
    "float64": 0.0,
}


def test_declarations_say_what_kafkas_definitions_say() -> None:
    assert [wrong for cls in DECLARED for wrong in differences(cls, KAFKAS[cls.__name__])] == []


@pytest.mark.parametrize(
    ("where", "said", "found"),
    [
        ("", {"type": "key 2"}, "FetchRequest: API key 1, not 2"),
        ("", {"versions": "4-19"}, "FetchRequest: versions 4-18, not 4-19"),
        ("", {"flexible": "11+"}, "FetchRequest: flexible 12+, not 11+"),
        ("MaxBytes", {"type": "int64"}, "FetchRequest version 4: max_bytes: int32 3+, not max_bytes: int64 3+"),
        ("MaxBytes", {"field": "MostBytes"}, "FetchRequest version 4: max_bytes: int32 3+, not most_bytes: int32 3+"),
        ("MaxBytes", {"default": "1"}, "FetchRequest.max_bytes: default 2147483647, not 1"),
        ("ClusterId", {"tag": "3"}, "cluster_id: string 12+ nullable tag 0, not cluster_id: string 12+ nullable tag 3"),
        ("Topics.Topic", {"versions": "0-13"}, "topics.topic: string 0-12, not topics.topic: string 0-13"),
        ("Topics.Topic", {"nullable": "0+"}, "topics.topic: string 0-12, not topics.topic: string 0-12 nullable"),
    ],
)
def test_a_declaration_that_says_something_else_is_found(where: str, said: dict[str, str], found: str) -> None:
    kafkas = KAFKAS["FetchRequest"]
    rows = [fact._replace(**said) if fact.field == where else fact for fact in (kafkas.message, *kafkas.fields)]
    assert found in "\n".join(differences(FetchRequest, Facts(rows)))


def test_a_field_that_is_declared_for_no_version_is_found() -> None:
    kafkas = KAFKAS["FetchRequest"]
    # From version 13 on topics have only ids.
    later = Facts([kafkas.message._replace(versions="13-18"), *kafkas.fields])
    assert "FetchTopic has fields topic, topic_id, partitions, not topic_id, partitions" in "\n".join(
        differences(FetchRequest, later)
    )


@pytest.mark.skipif(not DEFINITIONS.is_dir(), reason=f"Kafka's message definitions are not at {DEFINITIONS}")
def test_the_table_is_what_kafkas_definitions_say() -> None:
    """Definitions of an earlier release lack some messages, versions and tagged fields of the table; everything else is
    equal.
    """
    table, found = facts_in(TABLE.read_text()), facts_in(table_of(DEFINITIONS))
    same_versions = {name for name, facts in found.items() if facts.message == table[name].message}
    assert len(same_versions) > 0.9 * len(found)
    wrong = [name for name in sorted(same_versions) if not set(found[name].fields) <= set(table[name].fields)]
    assert not wrong, "python -m tests.support.kafka_facts"


def test_a_malformed_table_of_facts_is_refused() -> None:
    with pytest.raises(ValueError, match="its columns are not message, field, type"):
        facts_in("# a comment\nmessage\ttype\n")


def test_every_message_module_belongs_to_an_api_key() -> None:
    assert {key.name.lower() for key in (*DECLARED_KEYS, *ELSEWHERE)} | {"headers"} == MESSAGE_MODULES


def test_fields_of_our_own_can_be_left_out_everywhere() -> None:
    own = [
        (field, struct)
        for cls in DECLARED
        for struct in structs_of(cls)
        for field in fields_of(struct)
        if field not in kafkas_fields(struct)
    ]
    assert {field.name for field, _ in own} == {
        "are_log_ends",
        "asks_for_log_ends",
        "client_host",
        "client_id",
        "is_log_offline",
        "log_epoch",
        *NEWER,
    }
    for field, struct in own:
        assert field.has_default and field.tagged == field.versions, f"{struct.__qualname__}.{field.name}"


def differences(cls: type, kafkas: Facts) -> Iterator[str]:
    """Yield the differences between a declaration and Kafka's definition, one sentence each."""
    schema, versions = schema_of(cls), version_range(kafkas.message.versions)
    said = [
        ("API key", schema.api_key, kafkas.api_key),
        ("versions", schema.versions, versions),
        ("flexible", schema.flexible, version_range(kafkas.message.flexible)),
    ]
    yield from (f"{cls.__name__}: {what} {ours}, not {theirs}" for what, ours, theirs in said if ours != theirs)
    for version in range(versions.low, versions.high + 1):
        ours, theirs = declared_lines(cls, version), kafkas_lines(kafkas, version)
        if ours != theirs:
            pairs = list(zip([*ours, "nothing"], [*theirs, "nothing"], strict=False))
            our, their = next(pair for pair in pairs if pair[0] != pair[1])
            yield f"{cls.__name__} version {version}: {our}, not {their}"
            return  # a difference in one version usually repeats in most versions, in fields and in defaults
    yield from struct_differences(cls, kafkas, "", versions)


def struct_differences(struct: type, kafkas: Facts, path: str, within: VersionRange) -> Iterator[str]:
    """Yield fields that no valid version has, and wrong defaults, for the struct at this path and its inner structs."""
    served = [fact for fact in kafkas.fields_of(path) if is_some(intersection(version_range(fact.versions), within))]
    declared = kafkas_fields(struct)
    if [field.name for field in declared] != [snake_case(fact.name) for fact in served]:
        theirs = ", ".join(snake_case(fact.name) for fact in served)
        yield f"{struct.__qualname__} has fields {', '.join(field.name for field in declared)}, not {theirs}"
        return
    for field, fact in zip(declared, served, strict=True):
        default = effective_default(fact)
        where = f"{struct.__qualname__}.{field.name}"
        if fact.default and not field.has_default:
            yield f"{where}: no default, not {default!r}"
        elif field.has_default and not may_be_none(field, fact) and not is_same(field.default, default):
            yield f"{where}: default {field.default!r}, not {default!r}"
        if field.struct:
            yield from struct_differences(field.struct, kafkas, fact.field, intersection(field.versions, within))


def kafkas_lines(kafkas: Facts, version: int, path: str = "") -> list[str]:
    lines = []
    for fact in kafkas.fields_of(path):
        if version not in version_range(fact.versions):
            continue
        element = fact.type.removeprefix("[]")
        lines.append(
            line(
                ".".join(map(snake_case, fact.field.split("."))),
                "[]" * (fact.type != element) + TYPE_NAMES.get(element, element),
                version_range(fact.versions),
                version in version_range(fact.nullable or None),
                int(fact.tag) if version in version_range(fact.tagged or None) else None,
                bool(fact.flexible),
            )
        )
        lines += kafkas_lines(kafkas, version, fact.field)
    return lines


def declared_lines(cls: type, version: int, path: str = "") -> list[str]:
    lines = []
    for field in kafkas_fields(cls):
        if version not in field.versions:
            continue
        element = field.element if field.type_name == "array" else field
        assert element is not None
        lines.append(
            line(
                path + field.name,
                "[]" * (field.type_name == "array")
                + (element.struct.__name__ if element.struct else element.type_name),
                field.versions,
                version in field.nullable,
                field.tag if version in field.tagged else None,
                field.flexible is not None,
            )
        )
        if element.struct:
            lines += declared_lines(element.struct, version, f"{path}{field.name}.")
    return lines


def line(
    path: str, type_name: str, versions: VersionRange, nullable: bool, tag: int | None, own_flexibility: bool
) -> str:
    """Describe one field at one version as text, so that a difference is readable."""
    return " ".join(
        [f"{path}: {type_name} {versions}"]
        + ["nullable"] * nullable
        + [f"tag {tag}"] * (tag is not None)
        + ["never compact"] * own_flexibility
    )


def kafkas_fields(cls: type) -> list[FieldSchema]:
    """Return the declared fields that the table contains."""
    return [
        field for field in fields_of(cls) if field.tag is None or (field.tag < OWN_TAGS and field.name not in NEWER)
    ]


def may_be_none(declared: FieldSchema, fact: Fact) -> bool:
    """Whether the declared field may be None although Kafka names no default: None is encoded as null, or means that a
    tagged struct is omitted.
    """
    can_be_absent = declared.nullable != NO_VERSIONS or (declared.type_name == "struct" and declared.tag is not None)
    return declared.default is None and not fact.default and can_be_absent


def is_same(one: Any, other: Any) -> bool:
    """Whether two values are equal and of the same type; 0 is not False."""
    return bool(one == other) and type(one) is type(other)


def effective_default(fact: Fact) -> Any:
    if fact.default == "null":
        return None
    if not fact.default:
        return [] if fact.type.startswith("[]") else IMPLICIT_DEFAULTS.get(fact.type, 0)
    if fact.type == "bool":
        return fact.default == "true"
    if fact.type == "string":
        return "" if fact.default == EMPTY_TEXT else fact.default
    return int(fact.default, 0)


def snake_case(name: str) -> str:
    return re.sub(r"(?<=[a-z0-9])(?=[A-Z])", "_", name).lower()


def intersection(a: VersionRange, b: VersionRange) -> VersionRange:
    return VersionRange(max(a.low, b.low), min(a.high, b.high))


def is_some(versions: VersionRange) -> bool:
    return versions.low <= versions.high


def structs_of(cls: type) -> list[type]:
    nested = [(field.element if field.type_name == "array" else field).struct for field in fields_of(cls)]
    return [cls, *(each for struct in nested if struct for each in structs_of(struct))]
