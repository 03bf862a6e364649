"""`oncelog topics move-dir`: moves replicas of one broker to another data directory of that broker."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Final

import click

from oncelog.cli.command_config import connection_settings
from oncelog.cli.options import bootstrap_option
from oncelog.cli.output import count, tell
from oncelog.cli.running import Failure, run
from oncelog.cli.targets import TARGET, Target, check_brokers, partitions_of

if TYPE_CHECKING:
    from collections.abc import Sequence

    from oncelog.admin import Admin
    from oncelog.cluster import TopicPartition

LOOK_SECONDS: Final = 0.2
"""Seconds between two queries of the broker for the progress of the moves."""


@click.command(name="move-dir")
@click.argument("targets", nargs=-1, type=TARGET, required=True, metavar="TOPIC[:PARTITION]...")
@bootstrap_option
@click.option("--broker", "broker_id", type=int, required=True, metavar="ID", help="The broker that has the replicas.")
@click.option("--to", "path", required=True, metavar="DIRECTORY", help="The path of a data directory of that broker.")
@click.option("--wait", is_flag=True, help="Wait until the replicas are in the directory.")
def move_dir(targets: tuple[Target, ...], bootstrap: str, broker_id: int, path: str, wait: bool) -> None:
    """Move replicas of a broker to another of its data directories, while they are in use.

    If TOPIC is given without a partition, all replicas of the topic on this broker are moved. `oncelog log-dirs` shows
    the directories and the copies in progress. The broker's setting replica.alter.log.dirs.io.max.bytes.per.second
    limits the rate of the copies. To end a move, move the replica to the directory that holds it now.
    """

    async def command() -> int:
        from oncelog.admin import Admin

        async with Admin(bootstrap, **connection_settings()) as admin:
            await check_brokers(admin, [broker_id])
            partitions = await _replicas_of(admin, targets, broker_id)
            await admin.alter_replica_log_dirs(broker_id, dict.fromkeys(partitions, path))
            while wait and not await _are_there(admin, broker_id, partitions, path):  # noqa: ASYNC110 - brokers move
                await asyncio.sleep(LOOK_SECONDS)
        return len(partitions)

    moved = run(command, bootstrap)
    tell(f"{'moved' if wait else 'moving'} {count(moved, 'replica')} to {path}")


async def _replicas_of(admin: Admin, targets: Sequence[Target], broker_id: int) -> list[TopicPartition]:
    """Return the named partitions, and of named topics the partitions that have a replica on the broker. Raises Failure
    if there is none.
    """
    topics = await admin.describe_topics({topic for topic, _ in targets})
    named = {target for target in targets if target[1] is not None}
    found = [
        partition
        for partition in await partitions_of(admin, targets)
        if broker_id in topics[partition.topic].partitions[partition.partition].replicas
        or (partition.topic, partition.partition) in named
    ]
    if not found:
        raise Failure(f"broker {broker_id} has no replica of these topics")
    return found


async def _are_there(admin: Admin, broker_id: int, partitions: Sequence[TopicPartition], path: str) -> bool:
    """Whether all replicas are in the directory. Raises Failure if a move has ended without success."""
    from oncelog.admin import LogDirectory

    directories = (await admin.describe_log_dirs([broker_id]))[broker_id]
    target = directories.get(path)
    if not isinstance(target, LogDirectory):
        raise Failure(f"broker {broker_id} cannot use {path}")
    missing = [each for each in partitions if each not in target.replicas]
    if missing:
        raise Failure(f"{missing[0]} was not moved: the log of broker {broker_id} says why")
    return not any(target.replicas[each].is_future for each in partitions)
