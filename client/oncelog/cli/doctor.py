"""`oncelog doctor`: checks a cluster from this machine, and says for each finding what to do."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from typing import TYPE_CHECKING, Final

import click

from oncelog.cli.broker_http import Unread, read_pages
from oncelog.cli.cluster_state import ClusterState, read_state
from oncelog.cli.command_config import connection_settings
from oncelog.cli.health_checks import Evidence, Finding, State, findings
from oncelog.cli.options import bootstrap_option, output_option
from oncelog.cli.output import Column, count, show_rows, tell
from oncelog.cli.reassignment_throttle import throttled_topics
from oncelog.cli.running import Failure, describe, run

if TYPE_CHECKING:
    from collections.abc import Mapping

    from oncelog.admin import Admin
    from oncelog.cli.broker_http import BrokerPages
    from oncelog.cluster import Broker

    Versions = frozenset[tuple[int, int, int]]

REACH_SECONDS: Final = 5.0
"""Timeout in seconds for connecting from this machine to a broker."""
READ_SECONDS: Final = 60.0
"""Timeout in seconds of reading the state of the cluster."""
HANGING_SECONDS: Final = 30.0
"""Timeout in seconds of the search for hanging transactions."""
COLUMNS: Final = tuple(map(Column.headed, ("Check", "State", "What", "What to do")))


@click.command()
@bootstrap_option
@output_option
def doctor(bootstrap: str, output: str | None) -> None:
    """Check the cluster, and say what to do about each finding. Changes nothing.

    The checks include listeners (can this machine reach what brokers advertise), the controller, brokers that are not
    running, replication, hanging transactions, disks, leases (ZooKeeper sessions), clocks, file descriptors, versions,
    and
    throttles left behind. Leases, clocks and descriptors need the brokers' HTTP listeners (http.listener).

    Plain output: check, state (ok, warning, problem, not checked), what was found, what to do. The exit code is 1 if
    there is a problem, otherwise 0, even if there are warnings or some checks could not run.
    """

    async def command() -> list[Finding]:
        from oncelog.admin import Admin

        async with Admin(bootstrap, **connection_settings()) as admin:
            return await examined(admin)

    found = run(command, bootstrap)
    show_rows(COLUMNS, [(each.check, each.state.value, each.what, each.remedy) for each in found], output)
    problems = sum(each.state is State.PROBLEM for each in found)
    warnings = sum(each.state is State.WARNING for each in found)
    if problems:
        raise Failure(f"{count(problems, 'problem')}, {count(warnings, 'warning')}")
    tell(f"no problem, {count(warnings, 'warning')}")


async def examined(admin: Admin) -> list[Finding]:
    """Read the cluster and check it. If brokers cannot be reached, and the cluster therefore cannot be read, only the
    listeners are checked. Raises KafkaError.
    """
    from oncelog.errors import KafkaError, RequestTimedOut
    from oncelog_protocol.errors import ErrorCode

    cluster = await admin.describe_cluster()
    brokers = sorted(cluster.brokers, key=lambda broker: broker.node_id)
    reached = dict(zip((each.node_id for each in brokers), await asyncio.gather(*map(_reach, brokers)), strict=True))
    unreachable = {node: found for node, found in reached.items() if isinstance(found, str)}
    known = {broker.node_id: broker for broker in brokers}
    state = ClusterState(known, cluster.controller_id, topics={}, moving={}, directories={})
    rest = Finding("the rest", State.UNKNOWN, "it needs the brokers that cannot be reached", "see above")
    only_listeners = [*findings(Evidence.of_listeners(state, unreachable), ["listeners"]), rest]
    if unreachable.keys() == known.keys():
        return only_listeners
    try:
        async with asyncio.timeout(READ_SECONDS):
            served = {node: found for node, found in reached.items() if isinstance(found, frozenset)}
            evidence = await _gathered(admin, served)
    except (KafkaError, TimeoutError) as error:
        if unreachable:
            return only_listeners
        if isinstance(error, KafkaError):
            raise
        why = f"the cluster could not be read in {READ_SECONDS:.0f} s"
        raise RequestTimedOut(ErrorCode.REQUEST_TIMED_OUT, why) from error
    return findings(replace(evidence, unreachable=unreachable))


async def _gathered(admin: Admin, api_versions: Mapping[int, Versions]) -> Evidence:
    """Read the facts about the cluster that the checks need. Raises KafkaError."""
    state = await read_state(admin)
    brokers = [state.brokers[node] for node in sorted(state.brokers)]
    pages: dict[int, BrokerPages] = {}
    unread: dict[int, str] = {}
    for broker, found in zip(brokers, await asyncio.gather(*(_pages(admin, each) for each in brokers)), strict=True):
        if isinstance(found, str):
            unread[broker.node_id] = found
        else:
            pages[broker.node_id] = found
    hanging, why = await _hanging(admin)
    throttled = frozenset(await throttled_topics(admin, state.topics))
    return Evidence(state, {}, api_versions, pages, unread, hanging, why, throttled)


async def _pages(admin: Admin, broker: Broker) -> BrokerPages | str:
    """Return the HTTP pages of a broker, or the reason why they cannot be read."""
    try:
        return await read_pages(admin, broker)
    except Unread as error:
        return str(error)


async def _reach(broker: Broker) -> Versions | str:
    """Connect to the address that a broker advertises; return the API versions that the broker serves, or the reason of
    the failure.
    """
    from oncelog.address import Address
    from oncelog.config import ClientConfig, load
    from oncelog.connection.security import security_of
    from oncelog.connection.transport import connect
    from oncelog.errors import KafkaError

    address = Address(broker.host, broker.port)
    security = security_of(load(ClientConfig, str(address), connection_settings()))
    try:
        connection = await connect(
            address,
            client_id="oncelog-doctor",
            request_timeout_s=REACH_SECONDS,
            setup_timeout_s=REACH_SECONDS,
            security=security,
        )
    except KafkaError as error:
        return describe(error, str(address))
    try:
        assert connection.versions is not None
        return connection.versions.served
    finally:
        connection.close()


async def _hanging(admin: Admin) -> tuple[Mapping[str, tuple[str, ...]] | None, str]:
    """Return partition -> reasons why its open transactions hang; if the query failed, return None and the reason of
    the failure.
    """
    from oncelog.errors import KafkaError

    try:
        found = await asyncio.wait_for(admin.transactions.find_hanging(), HANGING_SECONDS)
    except KafkaError as error:
        return None, f"{error.code.name}: {error.message}"
    except TimeoutError:
        return None, f"no answer in {HANGING_SECONDS:.0f} s"
    reasons: dict[str, tuple[str, ...]] = {}
    for each in found:
        partition = str(each.transaction.partition)
        reasons[partition] = (*reasons.get(partition, ()), each.hang.value)
    return reasons, ""
