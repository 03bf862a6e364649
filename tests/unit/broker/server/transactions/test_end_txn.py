"""EndTxn: which transactions protocol each version uses, and the error codes."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest
from tests.support.handlers import CLIENT, answered, asked

from oncelog_broker.security.authorizer import rules
from oncelog_broker.server.transactions import end_txn
from oncelog_protocol.api import ApiKey
from oncelog_protocol.errors import ErrorCode, KafkaError
from oncelog_protocol.features import TRANSACTIONS_V1, TRANSACTIONS_V2
from oncelog_protocol.messages.end_txn import EndTxnRequest
from oncelog_protocol.producer_id import ProducerIdAndEpoch


class Coordinator:
    """Accepts every decision, or responds with `error`."""

    def __init__(self, error: ErrorCode | None = None) -> None:
        self.error = error
        self.ended: list[tuple[Any, ...]] = []
        self.noted: list[tuple[str, Any]] = []
        self.last_clients = SimpleNamespace(
            note=lambda transactional_id, client: self.noted.append((transactional_id, client))
        )

    def end_txn(self, *of: Any) -> Any:
        self.ended.append(of)
        return ProducerIdAndEpoch(7, 4) if self.error is None else KafkaError(self.error)


async def end(version: int, coordinator: Coordinator, *, transactional_id: str = "t", refused: Any = ()) -> Any:
    request = EndTxnRequest(transactional_id=transactional_id, producer_id=7, producer_epoch=3, committed=True)
    context = asked(ApiKey.END_TXN, version, refused=refused, transactions=coordinator)
    return await answered(end_txn.handle, request, context)


@pytest.mark.parametrize(("version", "protocol"), [(4, TRANSACTIONS_V1), (5, TRANSACTIONS_V2)])
async def test_v5_is_transactions_v2(version: int, protocol: int) -> None:
    coordinator = Coordinator()
    answer = await end(version, coordinator)
    assert coordinator.ended == [("t", ProducerIdAndEpoch(7, 3), True, protocol)]
    assert (answer.error_code, answer.producer_id, answer.producer_epoch) == (ErrorCode.NONE, 7, 4)
    assert coordinator.noted == [("t", CLIENT)], "for those who look who uses the id"


@pytest.mark.parametrize(
    ("version", "error", "told"),
    [
        (1, ErrorCode.PRODUCER_FENCED, ErrorCode.INVALID_PRODUCER_EPOCH),
        (2, ErrorCode.PRODUCER_FENCED, ErrorCode.PRODUCER_FENCED),
        (3, ErrorCode.TRANSACTION_ABORTABLE, ErrorCode.INVALID_TXN_STATE),
        (4, ErrorCode.TRANSACTION_ABORTABLE, ErrorCode.TRANSACTION_ABORTABLE),
        (5, ErrorCode.NOT_COORDINATOR, ErrorCode.NOT_COORDINATOR),
    ],
)
async def test_errors_have_codes_known_to_the_version(version: int, error: ErrorCode, told: ErrorCode) -> None:
    coordinator = Coordinator(error)
    assert (await end(version, coordinator)).error_code == told
    assert coordinator.noted == []


async def test_ending_a_transaction_needs_an_id_and_the_right_to_it() -> None:
    coordinator = Coordinator()
    assert (await end(5, coordinator, transactional_id="")).error_code == ErrorCode.INVALID_REQUEST
    refused = await end(5, coordinator, refused={(rules.END_TXN, "t")})
    assert refused.error_code == ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED
    assert coordinator.ended == []
