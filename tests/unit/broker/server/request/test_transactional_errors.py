"""The error codes of transactional errors depend on the version of the API (T8)."""

from __future__ import annotations

import pytest

from oncelog_broker.server.request.transactional_errors import (
    FIRST_PRODUCER_FENCED,
    FIRST_TRANSACTION_ABORTABLE,
    code_for,
)
from oncelog_protocol.api import ApiKey
from oncelog_protocol.errors import ErrorCode


@pytest.mark.parametrize(
    ("error", "since", "before"),
    [
        (ErrorCode.PRODUCER_FENCED, FIRST_PRODUCER_FENCED, ErrorCode.INVALID_PRODUCER_EPOCH),
        (ErrorCode.TRANSACTION_ABORTABLE, FIRST_TRANSACTION_ABORTABLE, ErrorCode.INVALID_TXN_STATE),
    ],
)
def test_t8_older_versions_get_error_codes_that_they_know(
    error: ErrorCode, since: dict[ApiKey, int], before: ErrorCode
) -> None:
    for api, first in since.items():
        assert (code_for(api, first - 1, error), code_for(api, first, error)) == (before, error)


def test_t8_other_apis_know_no_fenced_producer() -> None:
    for api in (ApiKey.PRODUCE, ApiKey.TXN_OFFSET_COMMIT):
        assert code_for(api, 99, ErrorCode.PRODUCER_FENCED) is ErrorCode.INVALID_PRODUCER_EPOCH


def test_other_errors_stay_as_they_are() -> None:
    assert code_for(ApiKey.END_TXN, 0, ErrorCode.INVALID_TXN_STATE) is ErrorCode.INVALID_TXN_STATE
