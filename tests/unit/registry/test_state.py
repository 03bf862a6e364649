"""The state of a schema registry is read from the records of its topic, and changes write such records."""

from __future__ import annotations

from collections.abc import Callable, Iterable

import pytest

from oncelog_registry import decisions, records
from oncelog_registry.errors import RegistryError
from oncelog_registry.formats import fingerprint
from oncelog_registry.records import Record
from oncelog_registry.schemas import Reference, Schema, SubjectVersion
from oncelog_registry.state import State

A, B, C = (Schema(f'{{"type":"fixed","name":"F","size":{size}}}') for size in (1, 2, 3))


class Topic:
    """A topic, and the state of a registry that has read the entire topic."""

    def __init__(self) -> None:
        self.log: list[Record] = []
        self.state = State()

    def write(self, written: Iterable[Record]) -> None:
        for record in written:
            self.log.append(record)
            self.state.apply(*record)

    def register(
        self, subject: str, schema: Schema, wanted_id: int | None = None, version: int | None = None
    ) -> SubjectVersion:
        found = decisions.register(self.state, subject, schema, fingerprint(schema), wanted_id, version)
        self.write(found.records)
        return found.version

    def delete(self, subject: str, version: int | str | None = None, *, permanent: bool = False) -> list[int]:
        if version is None:
            found = decisions.delete_subject(self.state, subject, permanent=permanent)
        else:
            found = decisions.delete_version(self.state, subject, version, permanent=permanent)
        self.write(found.records)
        return found.versions

    def compacted(self) -> Topic:
        """Return the state of a registry that starts after the topic was compacted."""
        last = {record.key: index for index, record in enumerate(self.log)}
        other = Topic()
        other.write(record for index, record in enumerate(self.log) if last[record.key] == index)
        return other


@pytest.fixture
def topic() -> Topic:
    return Topic()


def refused(code: int, call: Callable[..., object], *arguments: object, **named: object) -> None:
    with pytest.raises(RegistryError) as caught:
        call(*arguments, **named)
    assert caught.value.code == code


def test_equal_schemas_have_one_id_in_all_subjects(topic: Topic) -> None:
    assert [topic.register(*each).id for each in (("s", A), ("s", B), ("t", A), ("s", A))] == [1, 2, 1, 1]
    assert [each.version for each in topic.state.versions("s")] == [1, 2]
    assert topic.state.uses_of_id(1) == [topic.state.version("s", 1), topic.state.version("t", 1)]
    spaced = Schema(A.text.replace(":", " : "))
    assert topic.register("s", spaced).version == 1, "spaces make no other schema"
    assert topic.register("s", Schema(A.text, references=(Reference("x", "t", 1),))).id == 3, "references do"


def test_a_new_version_never_takes_the_number_of_a_deleted_one(topic: Topic) -> None:
    topic.register("s", A)
    topic.register("s", B)
    topic.delete("s", 2)
    assert topic.state.version("s", "latest").version == 1
    refused(40402, topic.state.version, "s", 2)
    assert topic.register("s", C).version == 3
    again = topic.register("s", B)
    assert (again.version, again.id) == (4, 2), "the id stays"


@pytest.mark.parametrize("version", [None, 1])
def test_an_id_is_never_given_again(topic: Topic, version: int | None) -> None:
    topic.register("s", A)
    topic.register("t", B)
    topic.delete("t", version)
    topic.delete("t", version, permanent=True)
    started_later = topic.compacted()
    started_later.log = [record for record in started_later.log if record.value is not None]
    started_later.state = State()
    started_later.write(started_later.log[:])
    assert started_later.register("s", C).id == topic.register("s", C).id == 3


def test_deleted_versions_still_answer_by_id(topic: Topic) -> None:
    topic.register("s", A)
    topic.delete("s")
    assert topic.state.subjects() == []
    assert topic.state.subjects(deleted=True) == ["s"]
    assert topic.state.with_id(1).schema == A
    assert topic.delete("s", permanent=True) == [1]
    refused(40403, topic.state.with_id, 1)


def test_deletions_go_step_by_step(topic: Topic) -> None:
    refused(40401, topic.delete, "s")
    topic.register("s", A)
    refused(40405, topic.delete, "s", permanent=True)
    refused(40407, topic.delete, "s", 1, permanent=True)
    refused(40402, topic.delete, "s", 7)
    assert topic.delete("s", "latest") == [1]
    refused(40404, topic.delete, "s")
    assert topic.delete("s", 1, permanent=True) == [1]
    refused(40401, topic.delete, "s", 1)


def test_a_referenced_schema_cannot_be_deleted(topic: Topic) -> None:
    topic.register("base", A)
    topic.register("user", Schema(B.text, references=(Reference("F", "base", 1),)))
    assert topic.state.referring_ids("base", 1) == [2]
    refused(42206, topic.delete, "base")
    refused(42206, topic.delete, "base", 1)
    topic.delete("user")
    assert topic.delete("base") == [1]


def test_modes_are_enforced(topic: Topic) -> None:
    def set_mode(subject: str | None, mode: str, *, force: bool = False) -> None:
        topic.write(decisions.set_mode(topic.state, subject, mode, force=force)[1])

    topic.register("s", A)
    set_mode(None, "READONLY")
    refused(42205, topic.register, "s", B)
    assert topic.register("s", A).version == 1, "it is there"
    refused(42205, topic.delete, "s")
    refused(42205, set_mode, None, "IMPORT")
    refused(42204, set_mode, None, "WRITE")
    set_mode("i", "import")
    refused(422, topic.register, "i", B)
    imported = topic.register("i", B, 77, 5)
    assert (imported.version, imported.id) == (5, 77)
    refused(42205, topic.register, "i", C, 77)
    refused(42205, topic.register, "i", C, 78, 5)
    set_mode(None, "READWRITE")
    assert topic.register("s", C).id == 78, "new ids are above all that were imported"
    refused(42205, topic.register, "s", B, 9)


def test_compatibility_levels_are_inherited(topic: Topic) -> None:
    assert topic.state.effective_level("s") == "BACKWARD"
    topic.write(decisions.set_level(None, "none")[1])
    topic.write(decisions.set_level("s", "full_transitive")[1])
    assert (topic.state.effective_level("s"), topic.state.effective_level("t")) == ("FULL_TRANSITIVE", "NONE")
    refused(42203, decisions.set_level, "s", "half")
    topic.write(decisions.remove_level(topic.state, "s")[1])
    refused(40408, decisions.remove_level, topic.state, "s")
    assert topic.state.effective_level("s") == "NONE"


def test_a_compacted_topic_tells_the_same(topic: Topic) -> None:
    topic.register("s", A)
    topic.register("s", B)
    topic.register("t", A)
    topic.delete("s", 1)
    topic.delete("t")
    topic.write(decisions.set_level("s", "FULL")[1])
    other = topic.compacted().state
    for deleted in (False, True):
        assert list(other.all_versions(deleted=deleted)) == list(topic.state.all_versions(deleted=deleted))
    assert other.next_version("t") == topic.state.next_version("t") == 2
    assert other.effective_level("s") == "FULL"


def test_foreign_records_are_skipped(topic: Topic) -> None:
    keys = [None, b"", b"no json", b"[]", b'{"keytype":1}', b'{"keytype":"NOOP","magic":0}', b'{"keytype":"SCHEMA"}']
    for key in keys:
        for value in (None, b"", b"{}", b"7", b'{"schema":1}'):
            topic.state.apply(key, value)
    assert list(topic.state.all_versions(deleted=True)) == []


def test_keys_and_values_are_those_of_the_confluent_registry(topic: Topic) -> None:
    topic.register("s", Schema("syntax = 'proto3';", "PROTOBUF", (Reference("a.proto", "a", 3),)))
    assert topic.log == [
        Record(
            b'{"keytype":"SCHEMA","subject":"s","version":1,"magic":1}',
            b'{"subject":"s","version":1,"id":1,"schemaType":"PROTOBUF","references":[{"name":"a.proto","subject":"a",'
            b'"version":3}],"schema":"syntax = \'proto3\';","deleted":false}',
        )
    ]
    assert records.config_record(None, "NONE") == Record(
        b'{"keytype":"CONFIG","subject":null,"magic":0}', b'{"compatibilityLevel":"NONE"}'
    )
    assert records.mode_record("s", None) == Record(b'{"keytype":"MODE","subject":"s","magic":0}', None)


@pytest.mark.parametrize("number", [b"1e400", b"NaN", b"[]", b"null", b'"x"'])
def test_a_record_with_a_strange_number_is_skipped(number: bytes) -> None:
    topic = Topic()
    topic.register("s", A)
    key = b'{"keytype":"SCHEMA","subject":"s","version":%s,"magic":1}' % number
    topic.state.apply(key, b'{"id":7,"schema":"true"}')
    topic.state.apply(key.replace(number, b"9"), b'{"id":%s,"schema":"true"}' % number)
    assert [each.version for each in topic.state.versions("s")] == [1]


def test_no_id_is_given_that_clients_cannot_read() -> None:
    topic = Topic()
    topic.write(decisions.set_mode(topic.state, "s", "IMPORT", force=False)[1])
    topic.register("s", A, 2**31 - 1, 1)
    with pytest.raises(RegistryError, match="No id or version above") as refused:
        topic.register("t", B)
    assert refused.value.code == 42205
    assert topic.register("t", A).id == 2**31 - 1


# --- version numbers of deleted versions


def test_a_version_that_was_deleted_for_good_is_not_given_again_after_compaction(topic: Topic) -> None:
    for schema in (A, B):
        topic.register("s", schema)
    topic.delete("s", 2)
    topic.delete("s", 2, permanent=True)
    later = topic.compacted()
    assert later.state.versions("s") == topic.state.versions("s"), "version 1 is still there"
    assert later.register("s", C).version == 3


def test_the_versions_of_a_subject_that_was_deleted_for_good_are_not_given_again(topic: Topic) -> None:
    for schema in (A, B):
        topic.register("s", schema)
    topic.delete("s")
    topic.delete("s", permanent=True)
    topic.register("other", A)
    topic.delete("other", 1)
    topic.delete("other", 1, permanent=True)
    later = topic.compacted().compacted()
    assert later.state.subjects(deleted=True) == []
    assert (later.register("s", C).version, later.register("other", C).version) == (3, 2)
    assert later.state.version("s", 3).deleted is False


def test_what_is_told_of_deleted_versions_is_no_more_than_is_needed(topic: Topic) -> None:
    for schema in (A, B):
        topic.register("s", schema)
    topic.delete("s", 1)
    topic.delete("s", 1, permanent=True)
    assert topic.state.untold_highest_versions("s", ()) == {}, "version 2 tells it"


def test_a_schema_to_which_a_deleted_one_refers_is_not_deleted_for_good(topic: Topic) -> None:
    topic.register("used", A)
    topic.register("refers", Schema(B.text, references=(Reference("F", "used", 1),)))
    topic.delete("refers")
    assert topic.delete("used", 1) == [1], "softly: its text is still there for old records"
    refused(42206, decisions.delete_version, topic.state, "used", 1, permanent=True)
    refused(42206, decisions.delete_subject, topic.state, "used", permanent=True)
    topic.delete("refers", permanent=True)
    assert topic.delete("used", permanent=True) == [1]
