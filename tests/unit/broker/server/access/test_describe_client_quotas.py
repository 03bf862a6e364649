"""DescribeClientQuotas: which entities a filter matches."""

from __future__ import annotations

from typing import Any

import pytest
from tests.support.handlers import answered, asked, image_with

from oncelog_broker.security.authorizer import rules
from oncelog_broker.server.access import describe_client_quotas
from oncelog_broker.server.access.describe_client_quotas import DEFAULT_ENTITY, EXACT, SPECIFIED
from oncelog_protocol.api import ApiKey
from oncelog_protocol.errors import ErrorCode
from oncelog_protocol.messages.describe_client_quotas import DescribeClientQuotasRequest
from oncelog_protocol.quotas import DEFAULT, QuotaEntity, QuotaKey

RATE = QuotaKey.PRODUCER_BYTE_RATE
QUOTAS = {
    QuotaEntity("alice", None, None): {RATE: 1.0},
    QuotaEntity("alice", "etl", None): {RATE: 2.0},
    QuotaEntity(DEFAULT, None, None): {RATE: 3.0},
    QuotaEntity(None, "etl", None): {RATE: 4.0},
    QuotaEntity(None, None, "10.0.0.1"): {QuotaKey.CONNECTION_CREATION_RATE: 5.0},
}


async def ask(*components: tuple[str, int, str | None], strict: bool = False, refused: Any = ()) -> Any:
    request = DescribeClientQuotasRequest(
        components=[
            DescribeClientQuotasRequest.ComponentData(entity_type=kind, match_type=how, match=name)
            for kind, how, name in components
        ],
        strict=strict,
    )
    context = asked(ApiKey.DESCRIBE_CLIENT_QUOTAS, 1, refused=refused, image=image_with(quotas=QUOTAS))
    return await answered(describe_client_quotas.handle, request, context)


def found(answer: Any) -> list[float]:
    """Return the values, which differ for each entity and thus identify it."""
    assert answer.error_code == ErrorCode.NONE
    return sorted(value.value for entry in answer.entries for value in entry.values)


@pytest.mark.parametrize(
    ("components", "strict", "values"),
    [
        ([], False, [1, 2, 3, 4, 5]),
        ([], True, []),
        ([("user", EXACT, "alice")], False, [1, 2]),
        ([("user", EXACT, "alice")], True, [1]),
        ([("user", DEFAULT_ENTITY, None)], False, [3]),
        ([("user", SPECIFIED, None)], False, [1, 2, 3]),
        ([("client-id", EXACT, "etl")], True, [4]),
        ([("user", EXACT, "alice"), ("client-id", EXACT, "etl")], False, [2]),
        ([("ip", EXACT, "::ffff:10.0.0.1")], False, [5]),
    ],
)
async def test_quota_filters_match_entities(components: list[Any], strict: bool, values: list[float]) -> None:
    assert found(await ask(*components, strict=strict)) == values


async def test_entity_parts_are_in_kafkas_order_and_the_default_is_null() -> None:
    (entry,) = (await ask(("user", EXACT, "alice"), ("client-id", EXACT, "etl"))).entries
    assert [(part.entity_type, part.entity_name) for part in entry.entity] == [("client-id", "etl"), ("user", "alice")]
    (entry,) = (await ask(("user", DEFAULT_ENTITY, None))).entries
    assert [(part.entity_type, part.entity_name) for part in entry.entity] == [("user", None)]


@pytest.mark.parametrize(
    ("components", "code"),
    [
        ([("", EXACT, "x")], ErrorCode.INVALID_REQUEST),
        ([("planet", EXACT, "x")], ErrorCode.UNSUPPORTED_VERSION),
        ([("user", EXACT, None)], ErrorCode.INVALID_REQUEST),
        ([("user", SPECIFIED, "alice")], ErrorCode.INVALID_REQUEST),
        ([("user", 9, None)], ErrorCode.INVALID_REQUEST),
        ([("ip", EXACT, "10.0.0.1"), ("user", EXACT, "alice")], ErrorCode.INVALID_REQUEST),
    ],
)
async def test_malformed_quota_filters_are_refused(components: list[Any], code: ErrorCode) -> None:
    answer = await ask(*components)
    assert (answer.error_code, answer.entries) == (code, None)


async def test_describing_quotas_needs_the_right() -> None:
    answer = await ask(refused={rules.DESCRIBE_QUOTAS})
    assert (answer.error_code, answer.entries) == (ErrorCode.CLUSTER_AUTHORIZATION_FAILED, None)
