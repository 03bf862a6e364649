"""Measures the cost of 1,000 ACLs for single-record Produce: `python bench/run.py --only authorizer`.

Two brokers of this build get the same load in turns (see compare.py). One broker has no authorizer, and the other
authorizes writes by ACLs. Most ACLs name other topics and other users; some of each kind apply to the topic.
"""

from __future__ import annotations

import contextlib
import statistics
import tempfile
from pathlib import Path
from typing import Final, NamedTuple

from compare import TOPIC, TURNS, Build, RawClient, produce  # import this module first, because it sets sys.path

import broker_cost as cost  # isort: skip
from broker_process import BrokerProcess  # isort: skip
from table import Add  # isort: skip

from oncelog_protocol.acls import CLUSTER_NAME, AclOperation, AclPermission, PatternType, ResourceType
from oncelog_protocol.api import ApiKey
from oncelog_protocol.messages.create_acls import CreateAclsRequest

ACLS: Final = 1000
SETTINGS: Final = {"log.retention.check.interval.ms": "100"}
GUARDED: Final = {**SETTINGS, "authorizer.class.name": "StandardAuthorizer"}
CREATE_ACLS_VERSION: Final = 3
PAIRS: Final = 4
"""The number of pairs of brokers. Several pairs are measured, because two processes of the same build may differ by
five percent during their whole life.
"""
LIMIT: Final = 1.03
"""The highest allowed ratio, with ACLs to without: the docs promise at most three percent more."""


def acls() -> list[CreateAclsRequest.AclCreation]:
    def acl(kind: ResourceType, name: str, pattern: PatternType, user: str) -> CreateAclsRequest.AclCreation:
        return CreateAclsRequest.AclCreation(
            resource_type=kind,
            resource_name=name,
            resource_pattern_type=pattern,
            principal=f"User:{user}",
            host="*",
            operation=AclOperation.ALL,
            permission_type=AclPermission.ALLOW,
        )

    topic, literal, prefixed = ResourceType.TOPIC, PatternType.LITERAL, PatternType.PREFIXED
    made = [
        acl(topic, "*", literal, "ANONYMOUS"),
        acl(ResourceType.CLUSTER, CLUSTER_NAME, literal, "ANONYMOUS"),
        acl(ResourceType.GROUP, "*", literal, "ANONYMOUS"),
    ]
    made += [acl(topic, TOPIC, literal, f"other-{number}") for number in range(200)]
    made += [acl(topic, TOPIC[: 1 + number % len(TOPIC)], prefixed, f"some-{number}") for number in range(200)]
    made += [acl(topic, f"topic-{number}", literal, "ANONYMOUS") for number in range(300)]
    made += [acl(topic, f"{'x' * (number % 40)}{number}-", prefixed, "ANONYMOUS") for number in range(ACLS - len(made))]
    return made


def opened(stack: contextlib.ExitStack, settings: dict[str, str], *, guarded: bool) -> Build:
    directory = Path(stack.enter_context(tempfile.TemporaryDirectory())) / "data"
    if guarded:
        everybody = {**settings, "super.users": "User:ANONYMOUS"}
        with BrokerProcess(directory, everybody) as first, contextlib.closing(RawClient(first.port)) as client:
            answer = client.call(CreateAclsRequest(creations=acls()), ApiKey.CREATE_ACLS, CREATE_ACLS_VERSION)
            assert all(result.error_code == 0 for result in answer.results)
    broker = stack.enter_context(BrokerProcess(directory, settings))
    client = stack.enter_context(contextlib.closing(RawClient(broker.port)))
    cost.recycled_topic(client, TOPIC)
    return Build(broker, client)


class Found(NamedTuple):
    """The CPU microseconds per request in each turn, of the broker without ACLs and of the broker with ACLs."""

    without: list[float]
    with_acls: list[float]


def turns(stack: contextlib.ExitStack, *, guarded_first: bool) -> Found:
    """Measure two brokers in turns."""
    builds = {guarded: opened(stack, GUARDED if guarded else SETTINGS, guarded=guarded)
              for guarded in (guarded_first, not guarded_first)}  # fmt: skip
    load = produce(100, 100, 1500, 1)
    for turn in range(TURNS + 1):
        for build in list(builds.values())[:: 1 if turn % 2 else -1]:
            with cost.pinned(build.broker.pid, together=True):
                spent = load(build).cpu_us_per_request
            if turn:  # the first turn is a warm-up
                build.spent.setdefault("produce", []).append(spent)
    without, with_acls = builds[False].spent["produce"], builds[True].spent["produce"]
    return Found(without, with_acls)


def measure(add: Add, scale: int) -> None:
    found: list[Found] = []
    for pair in range(max(1, PAIRS // scale)):
        with contextlib.ExitStack() as stack:
            found.append(turns(stack, guarded_first=bool(pair % 2)))
    without = [each for pair in found for each in pair.without]
    with_acls = [each for pair in found for each in pair.with_acls]
    ratio = statistics.median(after / before for each in found for before, after in zip(*each, strict=True))
    what = "produce, 1 record of 100 B per request, 1 in flight"
    add(f"{what}, without an authorizer", statistics.median(without), "CPU us/request")
    add(f"{what}, {ACLS:,} ACLs", statistics.median(with_acls), "CPU us/request")
    add(f"{ACLS:,} ACLs against no authorizer, produce of 1 record", ratio, "ratio", at_most=LIMIT)
