"""`oncelog ping`: checks whether brokers serve requests, for people and for health checks of containers."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import click

from oncelog.cli.command_config import connection_settings
from oncelog.cli.options import bootstrap_option, output_option
from oncelog.cli.output import Column, chosen_format, say, show_rows
from oncelog.cli.running import Failure, describe, run

if TYPE_CHECKING:
    from oncelog.address import Address
    from oncelog_protocol.messages.metadata import MetadataResponse

COLUMNS: Final = tuple(map(Column.headed, ("Address", "Brokers", "Controller")))
TIMEOUT_SECONDS: Final = 5.0
"""Default timeout in seconds: half of the usual timeout of container health checks, so that this command can report the
reason of a failure before it is killed.
"""


@click.command()
@bootstrap_option
@output_option
@click.option(
    "--node-id",
    type=click.IntRange(min=0),
    envvar="ONCELOG_NODE_ID",
    show_envvar=True,
    help="Succeed only if the broker of this id is in the cluster.",
)
@click.option(
    "--in-sync",
    is_flag=True,
    help="Succeed only if none of its replicas is behind: of the broker --node-id, or of any without that.",
)
@click.option(
    "--timeout",
    type=click.FloatRange(min=0, min_open=True),
    default=TIMEOUT_SECONDS,
    show_default=True,
    help="Seconds to wait for each broker.",
)
def ping(bootstrap: str, output: str | None, node_id: int | None, in_sync: bool, timeout: float) -> None:
    """Check that brokers serve requests; the exit code is 0 if all named brokers do.

        Only the named brokers are queried; other brokers of their cluster are not. With --in-sync the brokers check all
    topics, which takes longer and shows whether the next broker of a cluster may be stopped. Plain output has a
    sentence for each broker.
    """

    async def command() -> list[tuple[str, int, int]]:
        from oncelog.config import ClientConfig, load
        from oncelog.errors import KafkaError

        answered = []
        for address in load(ClientConfig, bootstrap, {}).bootstrap_addresses():
            try:
                answer = await _ask(address, with_topics=in_sync, timeout=timeout)
            except KafkaError as error:
                raise Failure(describe(error, str(address))) from error
            if node_id is not None and node_id not in {broker.node_id for broker in answer.brokers}:
                raise Failure(f"{address} answers, and broker {node_id} is not in the cluster")
            if in_sync and (behind := replicas_behind(answer, node_id)):
                raise Failure(f"{address} answers, and {len(behind)} replicas are behind: {', '.join(behind[:5])}")
            answered.append((str(address), len(answer.brokers), answer.controller_id))
        return answered

    rows = run(command, bootstrap)
    if chosen_format(output) == "plain":
        for address, brokers, controller in rows:
            say(f"{address} answers: {brokers} brokers, controller {controller}")
    else:
        show_rows(COLUMNS, rows, output)


async def _ask(address: Address, *, with_topics: bool, timeout: float) -> MetadataResponse:
    """Send a Metadata request to this broker only. Raises KafkaError."""
    from oncelog.config import ClientConfig, load
    from oncelog.connection.security import security_of
    from oncelog.connection.transport import connect
    from oncelog_protocol.messages.metadata import MetadataRequest

    security = security_of(load(ClientConfig, str(address), connection_settings()))
    connection = await connect(
        address, client_id="oncelog-ping", request_timeout_s=timeout, setup_timeout_s=timeout, security=security
    )
    try:
        request = MetadataRequest(topics=None if with_topics else [], allow_auto_topic_creation=False)
        return await connection.send(request)
    finally:
        connection.close()


def replicas_behind(answer: MetadataResponse, node_id: int | None) -> list[str]:
    """Return the replicas of this broker (None means any broker) that are not in sync, as `topic-partition on
    broker`.
    """
    return [
        f"{topic.name}-{partition.partition_index} on {replica}"
        for topic in answer.topics
        for partition in topic.partitions
        for replica in partition.replica_nodes
        if replica not in partition.isr_nodes and node_id in (None, replica)
    ]
