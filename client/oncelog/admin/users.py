"""SCRAM users: passwords are salted in the client, and never sent."""

from __future__ import annotations

import asyncio
import secrets
from collections.abc import Iterable, Mapping
from typing import Any, Final, NamedTuple

from oncelog.admin.calls import Calls
from oncelog.admin.items import Outcomes, sorted_out
from oncelog.errors import ConfigError
from oncelog_protocol.scram import MAX_ITERATIONS, MIN_ITERATIONS, ScramMechanism, salted_password

SALT_BYTES: Final = 24


class ScramCredentialInfo(NamedTuple):
    """The public part of a SCRAM credential."""

    mechanism: str
    iterations: int


class ScramUpsertion(NamedTuple):
    """A SCRAM credential to create or replace."""

    user: str
    password: str
    mechanism: str = "SCRAM-SHA-512"
    iterations: int = MIN_ITERATIONS

    def __repr__(self) -> str:
        return f"ScramUpsertion({self.user}, {self.mechanism})"


class ScramDeletion(NamedTuple):
    user: str
    mechanism: str


async def describe_user_scram_credentials(
    calls: Calls, users: Iterable[str] | None = None
) -> dict[str, list[ScramCredentialInfo]]:
    """Return the credentials by user; without `users`, of all users. Raises KafkaError, PartialFailure."""
    from oncelog_protocol.messages.describe_user_scram_credentials import DescribeUserScramCredentialsRequest

    def shown(answer: Any) -> tuple[str, int, str | None, list[ScramCredentialInfo]]:
        infos = [
            ScramCredentialInfo(ScramMechanism(info.mechanism).mechanism_name, info.iterations)
            for info in answer.credential_infos
        ]
        return answer.user, answer.error_code, answer.error_message, infos

    async def ask(names: list[str]) -> Outcomes[str, list[ScramCredentialInfo]]:
        wanted = [DescribeUserScramCredentialsRequest.UserName(name=name) for name in names]
        response = await calls.send_to_controller(DescribeUserScramCredentialsRequest(users=wanted or None))
        _check(response.error_code, response.error_message)
        return sorted_out(map(shown, response.results))

    if users is None:
        found, _ = await ask([])
        return found
    return await calls.each(users, ask)


async def alter_user_scram_credentials(calls: Calls, changes: Iterable[ScramUpsertion | ScramDeletion]) -> None:
    """Add, change and remove SCRAM credentials; all changes of one user succeed or fail together. Raises KafkaError,
    PartialFailure; ConfigError for an invalid change.
    """
    from oncelog_protocol.messages.alter_user_scram_credentials import AlterUserScramCredentialsRequest as Alter

    by_user: dict[str, list[ScramUpsertion | ScramDeletion]] = {}
    for change in changes:
        by_user.setdefault(change.user, []).append(change)

    prepared: Mapping[str, list[Any]] = {
        user: [await asyncio.to_thread(_prepared, change) for change in of_user] for user, of_user in by_user.items()
    }

    async def ask(users: list[str]) -> Outcomes[str, None]:
        asked = [each for user in users for each in prepared[user]]
        response = await calls.send_to_controller(
            Alter(
                deletions=[each for each in asked if isinstance(each, Alter.ScramCredentialDeletion)],
                upsertions=[each for each in asked if isinstance(each, Alter.ScramCredentialUpsertion)],
            )
        )
        return sorted_out((answer.user, answer.error_code, answer.error_message, None) for answer in response.results)

    await calls.each(by_user, ask)


def _prepared(change: ScramUpsertion | ScramDeletion) -> Any:
    """Convert a change to its structure in the AlterUserScramCredentials request; salting a password takes some
    milliseconds.
    """
    from oncelog_protocol.messages.alter_user_scram_credentials import AlterUserScramCredentialsRequest as Alter

    mechanism = ScramMechanism.named(change.mechanism)
    if mechanism is None:
        names = ", ".join(each.mechanism_name for each in ScramMechanism)
        raise ConfigError(f"{change.mechanism!r} is not a SCRAM mechanism: must be one of {names}")
    if isinstance(change, ScramDeletion):
        return Alter.ScramCredentialDeletion(name=change.user, mechanism=mechanism.value)
    if not MIN_ITERATIONS <= change.iterations <= MAX_ITERATIONS:
        raise ConfigError(f"iterations={change.iterations}: must be from {MIN_ITERATIONS} to {MAX_ITERATIONS}")
    if not change.password:
        raise ConfigError(f"the password of {change.user} is empty")
    salt = secrets.token_bytes(SALT_BYTES)
    return Alter.ScramCredentialUpsertion(
        name=change.user,
        mechanism=mechanism.value,
        iterations=change.iterations,
        salt=salt,
        salted_password=salted_password(mechanism, change.password, salt, change.iterations),
    )


def _check(code: int, message: str | None) -> None:
    from oncelog.errors import error_for
    from oncelog_protocol.errors import ErrorCode

    if code != ErrorCode.NONE:
        raise error_for(code, message or "")
