"""SaslAuthenticate (36), v0-2: carries a SASL token of the mechanism that SaslHandshake chose (KIP-152, KIP-368, T22).

A refused token gets a delayed response (connection.failed.authentication.delay.ms), and then the connection is closed.
A SaslAuthenticate request fails with ILLEGAL_SASL_STATE if the broker expects no token. Versions: v1 adds the session
lifetime of the login, v2 is flexible.
"""

from __future__ import annotations

from oncelog_broker.runtime.answers import Answer
from oncelog_broker.security.sasl.mechanism import Refused
from oncelog_broker.server.request.context import AnyContext
from oncelog_protocol.errors import ErrorCode, KafkaError
from oncelog_protocol.messages.sasl_authenticate import SaslAuthenticateRequest, SaslAuthenticateResponse


def handle(request: SaslAuthenticateRequest, context: AnyContext) -> Answer[SaslAuthenticateResponse]:
    gate = context.connection.gate
    if gate is None:
        return _refused(
            KafkaError(
                ErrorCode.ILLEGAL_SASL_STATE, "SaslAuthenticate request received after successful authentication"
            )
        )
    try:
        token, lifetime_ms = gate.authenticate(context.connection, bytes(request.auth_bytes))
    except Refused as error:
        return gate.refusal(context.connection, _refused(error))
    except KafkaError as error:
        return _refused(error)
    return SaslAuthenticateResponse(error_code=ErrorCode.NONE, auth_bytes=token, session_lifetime_ms=lifetime_ms)


def _refused(error: KafkaError) -> SaslAuthenticateResponse:
    return SaslAuthenticateResponse(error_code=error.code, error_message=error.message, auth_bytes=b"")
