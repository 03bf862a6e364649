"""Starts a broker of a local cluster (`oncelog serve` in the background), and checks that the broker serves."""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Final

from oncelog_broker.config.http_keys import HTTP_LISTENER, http_address
from oncelog_broker.local_cluster.ports import LOOPBACK
from oncelog_broker.local_cluster.process import LocalProcess
from oncelog_broker.local_cluster.state import Member

COMMAND: Final = (sys.executable, "-m", "oncelog", "serve")
ASK_MS: Final = 2000
FULL_REPLICATION: Final = 3
"""The default replication factor of topics in a cluster with enough brokers, the same as for Kafka's internal
topics."""


def address_of(broker: Member) -> str:
    return f"{LOOPBACK}:{broker.port}"


def log_of(directory: Path, broker: Member) -> Path:
    return directory / f"broker-{broker.number}.log"


def settings_of(
    directory: Path, broker: Member, brokers: int, connect_string: str, asked: Mapping[str, str]
) -> dict[str, str]:
    """Return the settings of one broker in a cluster of `brokers` brokers; the settings in `asked` (given by the user)
    take precedence. The port in a requested http.listener belongs to the first broker; the other brokers get the
    following ports.
    """
    replicas = str(min(FULL_REPLICATION, brokers))
    in_sync = "2" if brokers >= FULL_REPLICATION else "1"
    return {
        "node.id": str(broker.number),
        "listeners": f"PLAINTEXT://{address_of(broker)}",
        "log.dirs": str((directory / f"broker-{broker.number}").absolute()),
        "zookeeper.connect": connect_string,
        "default.replication.factor": replicas,
        "min.insync.replicas": in_sync,
        "offsets.topic.replication.factor": replicas,
        "transaction.state.log.replication.factor": replicas,
        "transaction.state.log.min.isr": in_sync,
        **asked,
        **_http_listener(broker, asked.get(HTTP_LISTENER.name)),
    }


def _http_listener(broker: Member, asked: str | None) -> dict[str, str]:
    """Return the setting for the HTTP listener of this broker; empty if the user has not requested an HTTP listener.
    Raises InvalidConfig.
    """
    if not asked:
        return {}
    first = http_address(asked)
    follows = first.port + broker.number - 1 if first.port else 0
    return {HTTP_LISTENER.name: str(first._replace(port=follows))}


def start_broker(
    directory: Path, broker: Member, settings: Mapping[str, str], note: Callable[[LocalProcess], None]
) -> None:
    """Start a broker, without waiting until it serves. `note` is a function that is called with the new process before
    the process runs the broker, so that the caller can record the process.
    """
    command = [*COMMAND]
    for key, value in settings.items():
        command += ["--set", f"{key}={value}"]
    LocalProcess.start(command, log_of(directory, broker), note=note)


async def members_seen_by(broker: Member) -> frozenset[int]:
    """Return the ids of the registered brokers according to this broker; empty while this broker does not respond."""
    from oncelog.admin import Admin
    from oncelog.errors import KafkaError

    try:
        async with Admin(address_of(broker), request_timeout_ms=ASK_MS) as admin:
            description = await admin.describe_cluster()
    except (KafkaError, OSError):
        return frozenset()
    return frozenset(each.node_id for each in description.brokers)


async def out_of_sync_for(broker: Member) -> list[str] | None:
    """According to this broker, the partitions without a leader or with an out-of-sync replica; None while this broker
    does not respond."""
    from oncelog.admin import Admin
    from oncelog.errors import KafkaError

    try:
        async with Admin(address_of(broker), request_timeout_ms=ASK_MS, default_api_timeout_ms=ASK_MS) as admin:
            names = await admin.list_topics(include_internal=True)
            topics = await admin.describe_topics(names) if names else {}
    except (KafkaError, OSError):
        return None
    return [
        f"{topic.name}-{partition.index}"
        for topic in topics.values()
        for partition in topic.partitions.values()
        if partition.leader < 0 or set(partition.isr) != set(partition.replicas)
    ]


async def elect_preferred_leaders(addresses: str) -> int:
    """Elect the preferred replicas as leaders, through this broker. Returns the number of elected partitions; if the
    preferred replica of a partition cannot lead, the partition keeps its leader.
    """
    from oncelog.admin import Admin
    from oncelog.errors import PartialFailure

    async with Admin(addresses) as admin:
        try:
            return len(await admin.elect_leaders())
        except PartialFailure as failure:
            return len(failure.results)
