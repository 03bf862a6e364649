"""Every declared message against Kafka's own definition of it: field by field, version by version.

The definitions are data beside the repository, `../shared/kafka-messages` (or where KAFKA_MESSAGES says): they
are not part of the project, so without them these tests are skipped.
"""

import json
import os
import re
from pathlib import Path

import pytest

from oncelog_protocol import consumer_protocol
from oncelog_protocol.api import ApiKey, request_type, response_type
from oncelog_protocol.coordinator_records import consumer_offsets, transaction_state
from oncelog_protocol.messages import headers
from oncelog_protocol.schema import OWN_TAGS, ZERO_UUID, FieldSchema, fields_of, schema_of
from oncelog_protocol.versions import NO_VERSIONS, VersionRange, version_range

REPOSITORY = Path(__file__).parents[3]
KAFKA_MESSAGES = Path(os.environ.get("KAFKA_MESSAGES", REPOSITORY.parent / "shared" / "kafka-messages"))
MESSAGE_MODULES = {path.stem for path in (REPOSITORY / "protocol/oncelog_protocol/messages").glob("[!_]*.py")}
WITHOUT_ZOOKEEPER = {ApiKey.CONTROLLED_SHUTDOWN}
"""What went from Kafka's definitions with ZooKeeper, in Kafka 4; declared by those of 3.9."""
AMONG_BROKERS = {ApiKey.ENVELOPE}
"""Not among the definitions that are at hand: tests/unit/protocol/test_envelope.py knows its bytes."""
ELSEWHERE = WITHOUT_ZOOKEEPER | AMONG_BROKERS
DECLARED_KEYS = [key for key in ApiKey if key.name.lower() in MESSAGE_MODULES and key not in ELSEWHERE]
DECLARED = [headers.RequestHeader, headers.ResponseHeader]
DECLARED += [message_type(key) for key in DECLARED_KEYS for message_type in (request_type, response_type)]
DECLARED += [
    consumer_offsets.OffsetCommitKey,
    consumer_offsets.OffsetCommitValue,
    consumer_offsets.GroupMetadataKey,
    consumer_offsets.GroupMetadataValue,
    consumer_protocol.ConsumerProtocolAssignment,
    consumer_protocol.ConsumerProtocolSubscription,
    transaction_state.TransactionLogKey,
    transaction_state.TransactionLogValue,
]

needs_kafka_messages = pytest.mark.skipif(
    not KAFKA_MESSAGES.is_dir(), reason=f"Kafka's message definitions are not at {KAFKA_MESSAGES}"
)

TYPE_NAMES = {"bool": "boolean"}
IMPLICIT_DEFAULTS = {"bool": False, "string": "", "bytes": b"", "records": None, "uuid": ZERO_UUID, "float64": 0.0}


def kafka_definition(name: str) -> dict:
    (path,) = KAFKA_MESSAGES.glob(f"*/{name}.json")  # in api/ or records/
    text = path.read_text()
    return json.loads(re.sub(r"^\s*//.*$", "", text, flags=re.MULTILINE))


def snake_case(name: str) -> str:
    return re.sub(r"(?<=[a-z0-9])(?=[A-Z])", "_", name).lower()


def versions_of(field: dict[str, str]) -> VersionRange:
    """The versions that have a field; for a tagged one the definitions may give those of the tag alone."""
    return version_range(field.get("versions") or field["taggedVersions"])


def intersection(a: VersionRange, b: VersionRange) -> VersionRange:
    return VersionRange(max(a.low, b.low), min(a.high, b.high))


class Definition:
    """One of Kafka's definitions, asked for the same things as a declaration."""

    def __init__(self, name: str) -> None:
        self.json = kafka_definition(name)
        self.versions = version_range(self.json["validVersions"])
        self.common = {struct["name"]: struct["fields"] for struct in self.json.get("commonStructs", ())}

    def struct_fields(self, field: dict) -> list[dict]:
        return field.get("fields") or self.common.get(field["type"].removeprefix("[]"), [])

    def lines(self, version: int) -> list[str]:
        return self._lines(self.json["fields"], version, "")

    def _lines(self, fields: list[dict], version: int, path: str) -> list[str]:
        lines = []
        for field in fields:
            if version not in versions_of(field):
                continue
            here = f"{path}{snake_case(field['name'])}"
            element = field["type"].removeprefix("[]")
            is_array = field["type"] != element
            nested = self.struct_fields(field)
            lines.append(
                line(
                    here,
                    "[]" * is_array + TYPE_NAMES.get(element, element),
                    versions_of(field),
                    version in version_range(field.get("nullableVersions")),
                    field.get("tag") if version in version_range(field.get("taggedVersions")) else None,
                    "flexibleVersions" in field,
                )
            )
            lines += self._lines(nested, version, here + ".")
        return lines

    def served_fields(self, fields: list[dict], within: VersionRange) -> list[dict]:
        """Without those that no valid version carries."""
        return [field for field in fields if _nonempty(intersection(versions_of(field), within))]


def _nonempty(versions: VersionRange) -> bool:
    return versions.low <= versions.high


def line(path, type_name, versions, nullable, tag, own_flexibility):
    """One field at one version, as text: a difference then reads by itself."""
    return " ".join(
        [f"{path}: {type_name} {versions}"]
        + ["nullable"] * nullable
        + [f"tag {tag}"] * (tag is not None)
        + ["never compact"] * own_flexibility
    )


def kafkas_fields(cls: type) -> list[FieldSchema]:
    """The declared fields without those that we have added."""
    return [field for field in fields_of(cls) if field.tag is None or field.tag < OWN_TAGS]


def declared_lines(cls: type, version: int, path: str = "") -> list[str]:
    lines = []
    for field in kafkas_fields(cls):
        if version not in field.versions:
            continue
        element = field.element if field.type_name == "array" else field
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


@needs_kafka_messages
@pytest.mark.parametrize("cls", DECLARED, ids=lambda cls: cls.__name__)
def test_key_and_versions(cls):
    schema, kafka = schema_of(cls), kafka_definition(cls.__name__)
    assert schema.api_key == kafka.get("apiKey")
    assert schema.versions == version_range(kafka["validVersions"])
    assert schema.flexible == version_range(kafka["flexibleVersions"])


@needs_kafka_messages
@pytest.mark.parametrize("cls", DECLARED, ids=lambda cls: cls.__name__)
def test_fields_of_every_version(cls):
    kafka = Definition(cls.__name__)
    for version in range(kafka.versions.low, kafka.versions.high + 1):
        assert declared_lines(cls, version) == kafka.lines(version), f"version {version}"


@needs_kafka_messages
@pytest.mark.parametrize("cls", DECLARED, ids=lambda cls: cls.__name__)
def test_no_field_is_declared_for_no_version(cls):
    kafka = Definition(cls.__name__)

    def check(struct: type, fields: list[dict], within: VersionRange) -> None:
        served = kafka.served_fields(fields, within)
        assert [field.name for field in kafkas_fields(struct)] == [snake_case(field["name"]) for field in served]
        for declared, field in zip(kafkas_fields(struct), served, strict=True):
            if declared.struct:
                check(declared.struct, kafka.struct_fields(field), intersection(declared.versions, within))

    check(cls, kafka.json["fields"], kafka.versions)


@needs_kafka_messages
@pytest.mark.parametrize("cls", DECLARED, ids=lambda cls: cls.__name__)
def test_defaults(cls):
    kafka = Definition(cls.__name__)

    def check(struct: type, fields: list[dict], within: VersionRange) -> None:
        for declared, field in zip(kafkas_fields(struct), kafka.served_fields(fields, within), strict=True):
            where = f"{struct.__qualname__}.{declared.name}"
            if "default" in field:
                assert declared.has_default, where
            if declared.has_default and not may_be_none(declared, field):
                assert declared.default == effective_default(field), where
                assert type(declared.default) is type(effective_default(field)), where
            if declared.struct:
                check(declared.struct, kafka.struct_fields(field), intersection(declared.versions, within))

    check(cls, kafka.json["fields"], kafka.versions)


def may_be_none(declared, field: dict) -> bool:
    """Ours may be None where Kafka names no default and None can go on the wire, or leaves out a tagged struct."""
    can_be_absent = declared.nullable != NO_VERSIONS or (declared.type_name == "struct" and declared.tag is not None)
    return declared.default is None and "default" not in field and can_be_absent


def effective_default(field: dict):
    kind, default = field["type"], field.get("default")
    if default == "null":
        return None
    if default is None:
        return [] if kind.startswith("[]") else IMPLICIT_DEFAULTS.get(kind, 0)
    if kind == "bool":
        return str(default).lower() == "true"
    if kind == "string":
        return default
    return int(str(default), 0)


def test_every_message_module_belongs_to_an_api_key():
    assert {key.name.lower() for key in (*DECLARED_KEYS, *ELSEWHERE)} | {"headers"} == MESSAGE_MODULES


def test_fields_of_our_own_can_be_left_out_everywhere():
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
    }
    for field, struct in own:
        assert field.has_default and field.tagged == field.versions, f"{struct.__qualname__}.{field.name}"


def structs_of(cls: type) -> list[type]:
    nested = [(field.element if field.type_name == "array" else field).struct for field in fields_of(cls)]
    return [cls, *(each for struct in nested if struct for each in structs_of(struct))]
