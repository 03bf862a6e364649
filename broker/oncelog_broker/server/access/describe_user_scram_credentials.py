"""DescribeUserScramCredentials (50), v0: the users who can log in by SCRAM, with the number of iterations of each
credential (KIP-554).
"""

from __future__ import annotations

from collections.abc import Mapping

from oncelog_broker.runtime.answers import Answer
from oncelog_broker.runtime.steps import Steps
from oncelog_broker.security.authorizer import rules
from oncelog_broker.security.sasl.credentials import parse_credential
from oncelog_broker.server.access.services import AccessContext
from oncelog_broker.server.request.duplicate_names import counted
from oncelog_protocol.errors import ErrorCode, KafkaError
from oncelog_protocol.messages.describe_user_scram_credentials import (
    DescribeUserScramCredentialsRequest,
    DescribeUserScramCredentialsResponse,
)
from oncelog_protocol.scram import ScramMechanism

Result = DescribeUserScramCredentialsResponse.DescribeUserScramCredentialsResult
Info = Result.CredentialInfo


def handle(
    request: DescribeUserScramCredentialsRequest, context: AccessContext
) -> Answer[DescribeUserScramCredentialsResponse]:
    if not context.may(rules.DESCRIBE_SCRAM):
        return DescribeUserScramCredentialsResponse(error_code=rules.DESCRIBE_SCRAM.refused, results=[])
    return context.in_slices(_describe_each(request, context))


def _describe_each(
    request: DescribeUserScramCredentialsRequest, context: AccessContext
) -> Steps[DescribeUserScramCredentialsResponse]:
    image = context.services.image
    named = yield from counted(user.name for user in request.users or ())
    results = []
    for name, count in (named or dict.fromkeys((each for each in image.user_configs if each is not None), 1)).items():
        infos, unreadable = _credentials_of(image.config_of_user(name))
        if count > 1:
            message = f"Cannot describe SCRAM credentials for the same user twice in a single request: {name}"
            results.append(_failed(name, KafkaError(ErrorCode.DUPLICATE_RESOURCE, message)))
        elif unreadable:
            message = f"The credential in the metadata store cannot be read; set it again: {', '.join(unreadable)}"
            results.append(_failed(name, KafkaError(ErrorCode.UNKNOWN_SERVER_ERROR, message)))
        elif infos:
            results.append(Result(user=name, error_code=ErrorCode.NONE, credential_infos=infos))
        elif named:
            message = f"Attempt to describe a user credential that does not exist: {name}"
            results.append(_failed(name, KafkaError(ErrorCode.RESOURCE_NOT_FOUND, message)))
        yield None
    return DescribeUserScramCredentialsResponse(error_code=ErrorCode.NONE, results=results)


def _credentials_of(settings: Mapping[str, str]) -> tuple[list[Info], list[str]]:
    """Return the SCRAM credentials of a user, and the names of the mechanisms whose stored credential cannot be
    decoded.
    """
    infos: list[Info] = []
    unreadable: list[str] = []
    for mechanism in ScramMechanism:
        text = settings.get(mechanism.mechanism_name)
        if text is None:
            continue
        try:
            infos.append(Info(mechanism=mechanism.value, iterations=parse_credential(text).iterations))
        except ValueError:
            unreadable.append(mechanism.mechanism_name)
    return infos, unreadable


def _failed(name: str, error: KafkaError) -> Result:
    return Result(user=name, error_code=error.code, error_message=error.message, credential_infos=[])
