"""AlterUserScramCredentials and DescribeUserScramCredentials give a result for each user."""

from __future__ import annotations

from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pytest
from tests.support.handlers import answered, asked, image_with

from oncelog_broker.security.authorizer import rules
from oncelog_broker.server.access import alter_user_scram_credentials, describe_user_scram_credentials
from oncelog_broker.server.access.alter_user_scram_credentials import MAX_SALT_BYTES
from oncelog_protocol.api import ApiKey
from oncelog_protocol.errors import ErrorCode
from oncelog_protocol.messages.alter_user_scram_credentials import AlterUserScramCredentialsRequest
from oncelog_protocol.messages.describe_user_scram_credentials import DescribeUserScramCredentialsRequest

Deletion = AlterUserScramCredentialsRequest.ScramCredentialDeletion
Upsertion = AlterUserScramCredentialsRequest.ScramCredentialUpsertion
SHA_256, SHA_512 = 1, 2


def upsertion(name: str = "alice", **fields: Any) -> Upsertion:
    given = {"mechanism": SHA_256, "iterations": 8192, "salt": b"salt", "salted_password": b"p" * 32}
    return Upsertion(name=name, **given | fields)


class Users:
    """The settings of users as the metadata store contains them."""

    def __init__(self) -> None:
        self.kept: dict[str, dict[str, str]] = {}

    async def alter_user_config(self, name: str, change: Callable[[dict[str, str]], Any]) -> Any:
        self.kept[name] = dict(change(dict(self.kept.get(name, {}))))
        return self.kept[name]

    async def wait_for(self, shows: Callable[[Any], bool]) -> None:
        assert shows(image_with(user_configs=self.kept))

    async def alter(self, *changes: Upsertion | Deletion, refused: Any = ()) -> dict[str, int]:
        request = AlterUserScramCredentialsRequest(
            deletions=[each for each in changes if isinstance(each, Deletion)],
            upsertions=[each for each in changes if isinstance(each, Upsertion)],
        )
        metadata = SimpleNamespace(wait_for=self.wait_for)
        context = asked(ApiKey.ALTER_USER_SCRAM_CREDENTIALS, 0, refused=refused, configs=self, metadata=metadata)
        answer = await answered(alter_user_scram_credentials.handle, request, context)
        await context.services.tasks.close()
        return {result.user: result.error_code for result in answer.results}

    async def describe(self, *names: str, refused: Any = ()) -> Any:
        users = [DescribeUserScramCredentialsRequest.UserName(name=name) for name in names] or None
        context = asked(
            ApiKey.DESCRIBE_USER_SCRAM_CREDENTIALS, 0, refused=refused, image=image_with(user_configs=self.kept)
        )
        request = DescribeUserScramCredentialsRequest(users=users)
        return await answered(describe_user_scram_credentials.handle, request, context)


def shown(answer: Any) -> dict[str, Any]:
    """Return user name -> (mechanism, iterations) of each credential, or the error code."""
    return {
        result.user: result.error_code or [(each.mechanism, each.iterations) for each in result.credential_infos]
        for result in answer.results
    }


async def test_credentials_are_made_changed_and_deleted() -> None:
    users = Users()
    assert await users.alter(upsertion(), upsertion(mechanism=SHA_512), upsertion("bob")) == {"alice": 0, "bob": 0}
    assert shown(await users.describe()) == {"alice": [(SHA_256, 8192), (SHA_512, 8192)], "bob": [(SHA_256, 8192)]}
    await users.alter(upsertion(iterations=4096), Deletion(name="alice", mechanism=SHA_512))
    assert shown(await users.describe("alice")) == {"alice": [(SHA_256, 4096)]}
    assert "p" * 32 not in str(users.kept), "what is kept lets nobody log in"


@pytest.mark.parametrize(
    ("change", "code"),
    [
        (upsertion(""), ErrorCode.UNACCEPTABLE_CREDENTIAL),
        (upsertion(mechanism=7), ErrorCode.UNSUPPORTED_SASL_MECHANISM),
        (upsertion(iterations=4095), ErrorCode.UNACCEPTABLE_CREDENTIAL),
        (upsertion(iterations=16385), ErrorCode.UNACCEPTABLE_CREDENTIAL),
        (upsertion(salt=b""), ErrorCode.UNACCEPTABLE_CREDENTIAL),
        (upsertion(salt=bytes(MAX_SALT_BYTES + 1)), ErrorCode.UNACCEPTABLE_CREDENTIAL),
        (upsertion(salted_password=b""), ErrorCode.UNACCEPTABLE_CREDENTIAL),
        (Deletion(name="nobody", mechanism=SHA_256), ErrorCode.RESOURCE_NOT_FOUND),
    ],
)
async def test_a_refused_credential_leaves_the_others(change: Any, code: ErrorCode) -> None:
    users = Users()
    assert await users.alter(change, upsertion("bob")) == {change.name: code, "bob": ErrorCode.NONE}
    assert set(users.kept) == {"bob"}


async def test_a_credential_that_is_altered_twice_stays_as_it_is() -> None:
    users = Users()
    twice = (Deletion(name="alice", mechanism=SHA_256), upsertion())
    assert await users.alter(*twice) == {"alice": ErrorCode.DUPLICATE_RESOURCE}
    assert users.kept == {}


async def test_altering_and_describing_need_rights() -> None:
    users = Users()
    denied = await users.alter(upsertion(), refused={rules.ALTER_SCRAM})
    assert (denied, users.kept) == ({"alice": ErrorCode.CLUSTER_AUTHORIZATION_FAILED}, {})
    answer = await users.describe(refused={rules.DESCRIBE_SCRAM})
    assert (answer.error_code, answer.results) == (ErrorCode.CLUSTER_AUTHORIZATION_FAILED, [])


async def test_credentials_of_named_users_are_described() -> None:
    users = Users()
    await users.alter(upsertion(), upsertion("bob"))
    users.kept["bob"] = {"SCRAM-SHA-256": "nonsense"}
    users.kept["carol"] = {"producer_byte_rate": "1"}
    answer = await users.describe("alice", "bob", "carol", "bob", "dave")
    assert shown(answer) == {
        "alice": [(SHA_256, 8192)],
        "bob": ErrorCode.DUPLICATE_RESOURCE,
        "carol": ErrorCode.RESOURCE_NOT_FOUND,
        "dave": ErrorCode.RESOURCE_NOT_FOUND,
    }
    assert shown(await users.describe()) == {"alice": [(SHA_256, 8192)], "bob": ErrorCode.UNKNOWN_SERVER_ERROR}
