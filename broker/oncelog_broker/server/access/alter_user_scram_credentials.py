"""AlterUserScramCredentials (51), v0: create, change and delete SCRAM credentials (KIP-554); each user succeeds or
fails independently.

The client salts the password, so that it never reaches the broker; the stored credential is not sufficient for a login.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import chain

from oncelog_broker.security.authorizer import rules
from oncelog_broker.security.sasl.credentials import credential_of
from oncelog_broker.server.access.services import AccessContext
from oncelog_broker.server.request.wait_for_metadata import wait_until_shown
from oncelog_protocol.errors import ErrorCode, KafkaError
from oncelog_protocol.messages.alter_user_scram_credentials import (
    AlterUserScramCredentialsRequest,
    AlterUserScramCredentialsResponse,
)
from oncelog_protocol.scram import MAX_ITERATIONS, MIN_ITERATIONS, ScramMechanism

TIMEOUT_MS = 30_000
"""The timeout of this operation in ms; the request has no timeout field."""
MAX_SALT_BYTES = 1024

Result = AlterUserScramCredentialsResponse.AlterUserScramCredentialsResult
Upsertion = AlterUserScramCredentialsRequest.ScramCredentialUpsertion
Deletion = AlterUserScramCredentialsRequest.ScramCredentialDeletion
Asked = Deletion | Upsertion
MECHANISMS = {mechanism.value: mechanism for mechanism in ScramMechanism}
Changes = dict[str, str | None]
"""Maps a SCRAM mechanism to the new credential; None means that the credential is deleted."""


async def _handle(
    request: AlterUserScramCredentialsRequest, context: AccessContext
) -> AlterUserScramCredentialsResponse:
    results = []
    pauses = context.services.slices.pauses()
    asked: dict[str, list[Asked]] = {}
    for each in chain[Asked](request.deletions, request.upsertions):
        await pauses.here()
        asked.setdefault(each.name, []).append(each)
    for name, wanted in asked.items():
        await pauses.here()
        code, message = ErrorCode.NONE, None
        try:
            context.require(rules.ALTER_SCRAM)
            await _alter(name, _changes(name, wanted), context)
        except KafkaError as error:
            code, message = error.code, error.message
        results.append(Result(user=name, error_code=code, error_message=message))
    return AlterUserScramCredentialsResponse(results=results)


def handle(request: AlterUserScramCredentialsRequest, context: AccessContext) -> object:
    return context.in_a_task(_handle(request, context))


def _changes(name: str, asked: Sequence[Asked]) -> Changes:
    """Return the changes that a request has for the user `name`. Raises KafkaError if one of them is invalid."""
    if not name:
        raise KafkaError(ErrorCode.UNACCEPTABLE_CREDENTIAL, "Username must not be empty")
    changes: Changes = {}
    for each in asked:
        mechanism = MECHANISMS.get(each.mechanism)
        if mechanism is None:
            raise KafkaError(ErrorCode.UNSUPPORTED_SASL_MECHANISM, "Unknown SCRAM mechanism")
        if mechanism.mechanism_name in changes:
            raise KafkaError(
                ErrorCode.DUPLICATE_RESOURCE, "A user credential cannot be altered twice in the same request"
            )
        changes[mechanism.mechanism_name] = _credential(mechanism, each) if isinstance(each, Upsertion) else None
    return changes


def _credential(mechanism: ScramMechanism, upsertion: Upsertion) -> str:
    if upsertion.iterations < MIN_ITERATIONS:
        raise KafkaError(ErrorCode.UNACCEPTABLE_CREDENTIAL, "Too few iterations")
    if upsertion.iterations > MAX_ITERATIONS:
        raise KafkaError(ErrorCode.UNACCEPTABLE_CREDENTIAL, "Too many iterations")
    if not upsertion.salt or not upsertion.salted_password or len(upsertion.salt) > MAX_SALT_BYTES:
        raise KafkaError(
            ErrorCode.UNACCEPTABLE_CREDENTIAL, "The salt is missing or too long, or the salted password is missing"
        )
    return credential_of(
        mechanism, bytes(upsertion.salt), bytes(upsertion.salted_password), upsertion.iterations
    ).format()


async def _alter(name: str, changes: Changes, context: AccessContext) -> None:
    def change(before: dict[str, str]) -> Mapping[str, str]:
        for mechanism, credential in changes.items():
            if credential is not None:
                before[mechanism] = credential
            elif before.pop(mechanism, None) is None:
                raise KafkaError(
                    ErrorCode.RESOURCE_NOT_FOUND, "Attempt to delete a user credential that does not exist"
                )
        return before

    services = context.services
    after = await services.configs.alter_user_config(name, change)
    await wait_until_shown(services.metadata, lambda image: image.config_of_user(name) == after, TIMEOUT_MS)
