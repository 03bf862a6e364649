"""Tests `oncelog acls` and `admin.acls` against a live broker."""

from __future__ import annotations

import json
import subprocess

import pytest
from broker_process import BrokerFactory, BrokerProcess
from warm_commands import run_oncelog_text

from oncelog import Admin
from oncelog.admin import (
    EVERY_ACL,
    AclBinding,
    AclEntry,
    AclFilter,
    AclOperation,
    AclPermission,
    AclResourceType,
    EntryFilter,
    PatternFilter,
    PatternType,
    ResourcePattern,
)
from oncelog.errors import ErrorCode, KafkaError

TIMEOUT_SECONDS = 60
GUARDED = {"authorizer.class.name": "StandardAuthorizer", "super.users": "User:ANONYMOUS"}


def oncelog(broker: BrokerProcess, *arguments: str) -> subprocess.CompletedProcess[str]:
    return run_oncelog_text("acls", *arguments, "--bootstrap-server", broker.address)


def test_acls_are_added_listed_and_removed(broker_factory: BrokerFactory) -> None:
    with broker_factory(GUARDED) as broker:
        added = oncelog(broker, "add", "--topic", "orders", "--prefixed", "--group", "g", "--principal", "User:alice",
                        "--operation", "read", "--operation", "IdempotentWrite")  # fmt: skip
        assert (added.returncode, added.stderr) == (0, "4 ACLs added\n")
        assert oncelog(broker, "add", "--cluster", "--principal", "User:*", "--operation", "all", "--deny",
                       "--host", "10.0.0.1").returncode == 0  # fmt: skip
        listed = json.loads(oncelog(broker, "list", "--topic", "orders-eu", "--matching", "--output", "json").stdout)
        assert [(acl["resource"], acl["name"], acl["pattern"], acl["operation"]) for acl in listed] == [
            ("Topic", "orders", "Prefixed", "Read"),
            ("Topic", "orders", "Prefixed", "IdempotentWrite"),
        ]
        unasked = oncelog(broker, "remove", "--principal", "User:alice")
        assert unasked.returncode == 1
        assert len(unasked.stdout.splitlines()) == 4
        removed = oncelog(broker, "remove", "--principal", "User:alice", "--operation", "read", "--yes")
        assert removed.stderr == "2 ACLs removed\n"
        left = oncelog(broker, "list", "--output", "plain").stdout.splitlines()
        assert sorted(line.split("\t")[5] for line in left) == ["All", "IdempotentWrite", "IdempotentWrite"]


async def test_the_admin_client_manages_acls(broker_factory: BrokerFactory) -> None:
    entry = AclEntry("User:alice", "*", AclOperation.WRITE, AclPermission.ALLOW)
    acls = [
        AclBinding(ResourcePattern(AclResourceType.TOPIC, name, PatternType.LITERAL), entry) for name in ("a", "b", "*")
    ]
    with broker_factory(GUARDED) as broker:
        async with Admin(broker.address) as admin:
            await admin.acls.create(acls)
            await admin.acls.create(acls[:1])
            assert await admin.acls.describe() == sorted(acls)
            holds = PatternFilter(AclResourceType.TOPIC, "a", PatternType.MATCH)
            found = await admin.acls.describe(AclFilter(holds, EVERY_ACL.entry))
            assert {acl.pattern.name for acl in found} == {"a", "*"}
            only_b = PatternFilter(AclResourceType.TOPIC, "b", PatternType.LITERAL)
            anybody = EntryFilter(None, None, AclOperation.ANY, AclPermission.ANY)
            deleted = await admin.acls.delete([AclFilter(only_b, anybody), EVERY_ACL])
            assert sorted(len(each) for each in deleted.values()) == [1, 2]
            assert await admin.acls.describe() == []
            no_cluster = ResourcePattern(AclResourceType.CLUSTER, "mine", PatternType.LITERAL)
            with pytest.raises(KafkaError) as refused:
                await admin.acls.create([AclBinding(no_cluster, entry)])
            assert refused.value.code is ErrorCode.INVALID_REQUEST


async def test_without_an_authorizer_there_are_no_acls(broker: BrokerProcess) -> None:
    async with Admin(broker.address) as admin:
        with pytest.raises(KafkaError) as refused:
            await admin.acls.describe()
    assert refused.value.code is ErrorCode.SECURITY_DISABLED
    listed = oncelog(broker, "list")
    assert listed.returncode == 1
    assert "SECURITY_DISABLED" in listed.stderr
