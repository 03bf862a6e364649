"""`oncelog topics`: create, list, describe, alter, delete; delete-records is in deletions.py, move-dir in
move_dir.py.
"""

from __future__ import annotations

import sys
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

import click

from oncelog.cli.command_config import connection_settings
from oncelog.cli.deletions import delete_records
from oncelog.cli.move_dir import move_dir
from oncelog.cli.options import KEY_VALUE, bootstrap_option, output_option
from oncelog.cli.output import chosen_format, confirmed, show_document, show_plain, show_table, tell
from oncelog.cli.running import Failure, run

if TYPE_CHECKING:
    from collections.abc import Sequence

    from oncelog.admin import Admin
    from oncelog.cluster import Topic, TopicPartition

PARTITION_COLUMNS: Final = ("Partition", "Leader", "Replicas", "In sync", "First offset", "End offset")

config_option: Final = click.option(
    "--config", "configs", type=KEY_VALUE, multiple=True, help="A setting of the topic. May be repeated."
)


@click.group()
def topics() -> None:
    """Create, list, describe, alter and delete topics."""


topics.add_command(delete_records)
topics.add_command(move_dir)


@topics.command()
@click.argument("name")
@bootstrap_option
@click.option("--partitions", type=click.IntRange(min=1), help="Default: the broker's num.partitions.")
@click.option("--replication-factor", type=click.IntRange(min=1), help="Default: default.replication.factor.")
@config_option
@click.option("--if-not-exists", is_flag=True, help="No error if the topic exists; it is not changed.")
def create(
    name: str,
    bootstrap: str,
    partitions: int | None,
    replication_factor: int | None,
    configs: tuple[tuple[str, str], ...],
    if_not_exists: bool,
) -> None:
    """Create the topic NAME."""

    async def command() -> bool:
        from oncelog.admin import Admin, NewTopic
        from oncelog.admin.resources import BROKER_DEFAULT
        from oncelog.errors import TopicAlreadyExists

        topic = NewTopic(name, partitions or BROKER_DEFAULT, replication_factor or BROKER_DEFAULT, dict(configs))
        async with Admin(bootstrap, **connection_settings()) as admin:
            try:
                await admin.create_topics([topic])
            except TopicAlreadyExists:
                if not if_not_exists:
                    raise
                return False
        return True

    is_new = run(command, bootstrap)
    tell(f"created {name}" if is_new else f"{name} exists already")


@topics.command(name="list")
@bootstrap_option
@output_option
@click.option("--internal", is_flag=True, help="The broker's own topics too.")
def list_(bootstrap: str, output: str | None, internal: bool) -> None:
    """List the topics. Plain output: a name on each line."""

    async def command() -> list[str]:
        from oncelog.admin import Admin

        async with Admin(bootstrap, **connection_settings()) as admin:
            return await admin.list_topics(include_internal=internal)

    names = run(command, bootstrap)
    match chosen_format(output):
        case "json":
            show_document(names)
        case "plain":
            show_plain([(name,) for name in names], ["Topic"])
        case _:
            show_table(["Topic"], [(name,) for name in names])


@topics.command()
@click.argument("names", nargs=-1, metavar="[NAME]...")
@bootstrap_option
@output_option
@click.option("--internal", is_flag=True, help="Without names: the broker's own topics too.")
def describe(names: tuple[str, ...], bootstrap: str, output: str | None, internal: bool) -> None:
    """Show partitions, offsets and settings of the topics NAME, or of all.

    The offsets of a partition are its first offset and the offset that its next record will get. Settings are shown if
    they differ from the default.
    Plain output has a line for each partition: topic, partition, leader, replicas, replicas in sync, first offset, end
    offset, settings.
    """

    async def command() -> list[_Description]:
        from oncelog.admin import Admin

        async with Admin(bootstrap, **connection_settings()) as admin:
            return await _describe(admin, names or await admin.list_topics(include_internal=internal))

    _show_descriptions(run(command, bootstrap), chosen_format(output))


@topics.command()
@click.argument("name")
@bootstrap_option
@click.option("--partitions", type=click.IntRange(min=1), help="The new number of partitions, above the present one.")
@config_option
@click.option("--delete-config", "deleted", multiple=True, metavar="KEY", help="Set back to the default; repeatable.")
def alter(
    name: str,
    bootstrap: str,
    partitions: int | None,
    configs: tuple[tuple[str, str], ...],
    deleted: tuple[str, ...],
) -> None:
    """Change settings of the topic NAME, or increase its number of partitions.

    Settings are changed first: if a setting is refused, the number of partitions stays unchanged.
    """
    if partitions is None and not configs and not deleted:
        raise click.UsageError("nothing to alter: --partitions, --config or --delete-config is needed")
    if both := {key for key, _ in configs} & set(deleted):
        raise click.UsageError(f"{', '.join(sorted(both))}: either --config or --delete-config")

    async def command() -> None:
        from oncelog.admin import Admin
        from oncelog.admin.resources import AlterConfig, AlterOperation, ConfigResource

        changes = [AlterConfig(key, value) for key, value in configs]
        changes += [AlterConfig(key, None, AlterOperation.DELETE) for key in deleted]
        async with Admin(bootstrap, **connection_settings()) as admin:
            if changes:
                await admin.incremental_alter_configs({ConfigResource.topic(name): changes})
            if partitions is not None:
                await admin.create_partitions({name: partitions})

    run(command, bootstrap)
    tell(f"altered {name}")


@topics.command()
@click.argument("names", nargs=-1, required=True, metavar="NAME...")
@bootstrap_option
@click.option("--yes", "-y", is_flag=True, help="Do not ask.")
def delete(names: tuple[str, ...], bootstrap: str, yes: bool) -> None:
    """Delete the topics NAME and all their records."""
    if not yes:
        question = f"Delete {', '.join(names)} and all their records?"
        if not sys.stdin.isatty():
            raise Failure("deleting needs a confirmation, and standard input is not a terminal: use --yes")
        if not confirmed(question):
            raise Failure("nothing was deleted")

    async def command() -> None:
        from oncelog.admin import Admin

        async with Admin(bootstrap, **connection_settings()) as admin:
            await admin.delete_topics(names)

    run(command, bootstrap)
    tell(f"deleted {', '.join(names)}")


@dataclass(frozen=True, slots=True)
class _Description:
    """A topic for display; `partitions` has a row of PARTITION_COLUMNS for each partition."""

    name: str
    topic_id: str
    replication_factor: int
    is_internal: bool
    configs: dict[str, str | None]
    partitions: list[tuple[int, int, tuple[int, ...], tuple[int, ...], int | None, int | None]]

    def as_json(self) -> dict[str, Any]:
        names = ("partition", "leader", "replicas", "isr", "beginning_offset", "end_offset")
        return {
            "topic": self.name,
            "topic_id": self.topic_id,
            "is_internal": self.is_internal,
            "replication_factor": self.replication_factor,
            "configs": self.configs,
            "partitions": [dict(zip(names, row, strict=True)) for row in self.partitions],
        }

    def settings(self) -> str:
        return ",".join(f"{key}={value}" for key, value in sorted(self.configs.items()))


async def _describe(admin: Admin, names: Sequence[str]) -> list[_Description]:
    """Describe topics for display. Raises KafkaError."""
    from oncelog.admin.resources import ConfigResource
    from oncelog.cluster import NO_NODE, TopicPartition
    from oncelog.metadata.list_offsets import EARLIEST_TIMESTAMP, LATEST_TIMESTAMP

    if not names:
        return []
    known = await admin.describe_topics(names)
    configs = await admin.describe_configs([ConfigResource.topic(name) for name in known])
    # Skip partitions without a leader, because a query for their offsets would wait for a leader.
    led = [
        TopicPartition(topic.name, partition.index)
        for topic in known.values()
        for partition in topic.partitions.values()
        if partition.leader != NO_NODE
    ]
    beginnings = await admin.list_offsets(dict.fromkeys(led, EARLIEST_TIMESTAMP)) if led else {}
    ends = await admin.list_offsets(dict.fromkeys(led, LATEST_TIMESTAMP)) if led else {}
    offsets = {partition: (beginnings[partition].offset, ends[partition].offset) for partition in led}
    return [_description(known[name], configs[ConfigResource.topic(name)], offsets) for name in sorted(known)]


def _description(topic: Topic, configs: dict[str, Any], offsets: dict[TopicPartition, tuple[int, int]]) -> _Description:
    from oncelog.cluster import TopicPartition
    from oncelog_protocol.uuids import uuid_to_string

    rows = []
    for index, partition in sorted(topic.partitions.items()):
        beginning, end = offsets.get(TopicPartition(topic.name, index), (None, None))
        rows.append((index, partition.leader, partition.replicas, partition.isr, beginning, end))
    return _Description(
        topic.name,
        uuid_to_string(topic.topic_id),
        max((len(partition.replicas) for partition in topic.partitions.values()), default=0),
        topic.is_internal,
        {entry.name: entry.value for entry in configs.values() if not entry.is_default},
        rows,
    )


def _show_descriptions(described: Sequence[_Description], how: str) -> None:
    match how:
        case "json":
            show_document([topic.as_json() for topic in described])
        case "plain":
            show_plain(
                [(topic.name, *row, topic.settings()) for topic in described for row in topic.partitions],
                ("Topic", *PARTITION_COLUMNS, "Settings"),
            )
        case _:
            for topic in described:
                title = f"{topic.name}  (id {topic.topic_id}, replication factor {topic.replication_factor})"
                show_table(PARTITION_COLUMNS, topic.partitions, title, topic.settings() or "default settings")
