"""`oncelog support bundle`: writes the state of a cluster to one archive, for people who help with the cluster."""

from __future__ import annotations

import asyncio
import platform
import shutil
import subprocess
from collections.abc import Awaitable, Callable
from dataclasses import asdict, is_dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import click

from oncelog.cli.broker_http import BrokerPages, Unread, read_pages
from oncelog.cli.cluster_state import read_state
from oncelog.cli.command_config import connection_settings
from oncelog.cli.doctor import examined
from oncelog.cli.options import bootstrap_option
from oncelog.cli.output import count, say, tell
from oncelog.cli.redaction import HIDDEN, is_secret_name, secrets_of
from oncelog.cli.running import Failure, describe, run
from oncelog.cli.support_archive import SupportArchive, last_lines
from oncelog.clock import now_ms
from oncelog.connection.versions import CLIENT_SOFTWARE_VERSION

if TYPE_CHECKING:
    from oncelog.admin import Admin
    from oncelog.admin.resources import ConfigEntry

DEFAULT_LINES: Final = 2000
"""Number of lines that are read from the end of each log."""
MAX_GROUPS: Final = 200
"""Maximum number of groups whose members and offsets the archive contains; the names of all groups are listed."""
PART_SECONDS: Final = 90.0
"""Timeout in seconds for reading one part of the archive, such as the topics or the groups. If reading a part fails,
the archive contains the reason instead.
"""
JOURNAL_SECONDS: Final = 60

README: Final = """\
A support bundle of oncelog {version}, of {time} (UTC), made by `oncelog support bundle`.

client.json               this machine, and how the command connected
doctor.json               the findings of `oncelog doctor`
cluster.json              brokers, topics, partitions, moves, data directories
configs-brokers.json      settings of each broker; secrets are hidden
configs-topics.json       settings of topics that differ from the default
groups.json               consumer groups
transactions.json         transactional ids and their states
metrics/broker-N.txt      what /metrics of each broker said, where it could be read from here
logs/...                  the last lines of the logs that were named (--log, --journal)

Not in it: records, users, ACLs, passwords, keys, tokens. It has the names of topics, groups, clients and machines: look
through it before you send it on.
"""


@click.group()
def support() -> None:
    """Collect data about a cluster for a person who helps to find a problem."""


@support.command()
@click.argument("file", required=False, type=click.Path(dir_okay=False, path_type=Path), metavar="[FILE.tar.gz]")
@bootstrap_option
@click.option(
    "--log",
    "logs",
    multiple=True,
    type=click.Path(exists=True, dir_okay=False, path_type=Path),
    help="Add the last lines of this log file; may be repeated.",
)
@click.option("--journal", "units", multiple=True, metavar="UNIT", help="Add the last lines of this systemd unit.")
@click.option(
    "--lines", type=click.IntRange(min=1), default=DEFAULT_LINES, show_default=True, help="Lines of each log."
)
def bundle(file: Path | None, bootstrap: str, logs: tuple[Path, ...], units: tuple[str, ...], lines: int) -> None:
    """Write one archive: settings without secrets, states, metrics, findings of `doctor`, and the ends of logs.

    If a part cannot be read, the archive contains the reason instead. Secrets are hidden: values of password settings,
    all passwords of --command-config, and text that looks like a password, a token or a private key.

    `oncelog support bundle --log cluster-data/broker-1.log`, or `--journal oncelog` under systemd.
    """
    now_s = now_ms() // 1000
    now = datetime.fromtimestamp(now_s, UTC)
    path = file or Path(f"oncelog-support-{now:%Y%m%d-%H%M%S}.tar.gz")
    if not path.name.endswith(".tar.gz"):
        raise click.UsageError(f"{path}: the archive is a .tar.gz")
    settings = connection_settings()
    failed: list[str] = []
    try:
        with SupportArchive(path, secrets_of(settings), now_s) as archive:
            archive.add_text(
                "README.txt", README.format(version=CLIENT_SOFTWARE_VERSION, time=f"{now:%Y-%m-%d %H:%M:%S}")
            )
            archive.add_document("client.json", _client(bootstrap, settings))
            for log in logs:
                archive.add_text(f"logs/{log.parent.name}-{log.name}", last_lines(log, lines))
            for unit in units:
                archive.add_text(f"logs/{unit}.journal.log", _journal(unit, lines))
            run(lambda: _read_into(archive, bootstrap, failed), bootstrap)
    except OSError as error:
        raise Failure(f"{path}: {error.strerror or error}") from error
    say(str(path))
    tell(
        f"{count(len(archive.names), 'file')}, with names of topics and clients: look through it before you send it on"
    )
    if failed:
        tell(f"could not be read: {', '.join(failed)}; the archive says why")


def _client(bootstrap: str, settings: dict[str, Any]) -> dict[str, object]:
    return {
        "release": CLIENT_SOFTWARE_VERSION,
        "python": platform.python_version(),
        "platform": platform.platform(),
        "bootstrap_servers": bootstrap,
        "settings": {name: HIDDEN if is_secret_name(name) else value for name, value in settings.items()},
    }


def _journal(unit: str, lines: int) -> str:
    """Return the last lines of a systemd unit, or the reason why they cannot be read."""
    journalctl = shutil.which("journalctl")
    if journalctl is None:
        return "there is no journalctl here\n"
    command = [journalctl, "--no-pager", "--unit", unit, "--lines", str(lines)]
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=JOURNAL_SECONDS, check=False)  # noqa: S603
    except subprocess.TimeoutExpired:
        return f"journalctl did not end in {JOURNAL_SECONDS} s\n"
    return done.stdout or done.stderr


async def _read_into(archive: SupportArchive, bootstrap: str, failed: list[str]) -> None:
    """Read the parts of the cluster one after another; a part that fails does not affect the other parts."""
    from oncelog.admin import Admin
    from oncelog.errors import KafkaError

    async def part(name: str, read: Callable[[], Awaitable[Any]]) -> None:
        try:
            value = await asyncio.wait_for(read(), PART_SECONDS)
        except (KafkaError, TimeoutError) as error:
            why = describe(error, bootstrap) if isinstance(error, KafkaError) else f"no answer in {PART_SECONDS:.0f} s"
            failed.append(name)
            value = {"error": why}
        archive.add_document(f"{name}.json", value)

    try:
        async with Admin(bootstrap, **connection_settings()) as admin:
            await part("doctor", lambda: _findings(admin))
            await part("cluster", lambda: _cluster(admin))
            await part("configs-brokers", lambda: _broker_configs(admin))
            await part("configs-topics", lambda: _topic_configs(admin))
            await part("groups", lambda: _groups(admin))
            await part("transactions", lambda: _transactions(admin))
            await _add_metrics(admin, archive, failed)
    except KafkaError as error:
        failed.append("the cluster")
        archive.add_document("cluster.json", {"error": describe(error, bootstrap)})


async def _findings(admin: Admin) -> list[dict[str, object]]:
    return [each._asdict() for each in await examined(admin)]


async def _cluster(admin: Admin) -> dict[str, object]:
    state = await read_state(admin)
    return {
        "controller": state.controller_id,
        "brokers": [asdict(broker) for broker in state.brokers.values()],
        "partitions": {str(each): asdict(partition) for each, partition in sorted(state.partitions.items())},
        "moving": {str(each): asdict(move) for each, move in sorted(state.moving.items())},
        "directories": {
            node: {path: _directory(directory) for path, directory in directories.items()}
            for node, directories in state.directories.items()
        },
    }


def _directory(directory: Any) -> object:
    if not is_dataclass(directory):
        return {"error": str(directory)}
    found: Any = directory
    return {
        "total_bytes": found.total_bytes,
        "usable_bytes": found.usable_bytes,
        "replicas": {str(each): [replica.size, replica.offset_lag] for each, replica in sorted(found.replicas.items())},
    }


def _settings(entries: dict[str, ConfigEntry], *, everything: bool) -> dict[str, object]:
    return {
        name: {
            "value": HIDDEN if entry.is_sensitive or is_secret_name(name) else entry.value,
            "source": entry.source.name,
        }
        for name, entry in sorted(entries.items())
        if everything or not entry.is_default
    }


async def _broker_configs(admin: Admin) -> dict[str, object]:
    from oncelog.admin import ConfigResource

    brokers = (await admin.describe_cluster()).brokers
    found = await admin.describe_configs([ConfigResource.broker(broker.node_id) for broker in brokers])
    return {resource.name: _settings(entries, everything=True) for resource, entries in found.items()}


async def _topic_configs(admin: Admin) -> dict[str, object]:
    from oncelog.admin import ConfigResource

    names = await admin.list_topics(include_internal=True)
    found = await admin.describe_configs([ConfigResource.topic(name) for name in names]) if names else {}
    return {resource.name: _settings(entries, everything=False) for resource, entries in found.items()}


async def _groups(admin: Admin) -> dict[str, object]:
    listed = await admin.groups.list()
    described = await admin.groups.describe([group.group_id for group in listed[:MAX_GROUPS]]) if listed else {}
    return {"listed": [asdict(group) for group in listed], "described": {k: asdict(v) for k, v in described.items()}}


async def _transactions(admin: Admin) -> list[dict[str, object]]:
    return [asdict(each) for each in await admin.transactions.list()]


async def _add_metrics(admin: Admin, archive: SupportArchive, failed: list[str]) -> None:
    for broker in (await admin.describe_cluster()).brokers:
        try:
            pages: BrokerPages = await read_pages(admin, broker)
        except Unread as error:
            failed.append(f"metrics of broker {broker.node_id}")
            archive.add_text(f"metrics/broker-{broker.node_id}.txt", f"# not read: {error}\n")
        else:
            archive.add_text(f"metrics/broker-{broker.node_id}.txt", pages.metrics)
