"""Translates transactional error codes for older versions of an API (T8): codes that older clients do not know are
replaced, so that these clients react correctly.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from oncelog_protocol.api import ApiKey
from oncelog_protocol.errors import ErrorCode

FIRST_PRODUCER_FENCED: Final[Mapping[ApiKey, int]] = {
    ApiKey.INIT_PRODUCER_ID: 4,
    ApiKey.ADD_PARTITIONS_TO_TXN: 2,
    ApiKey.ADD_OFFSETS_TO_TXN: 2,
    ApiKey.END_TXN: 2,
}
"""First version of each API whose clients know PRODUCER_FENCED (KIP-588); in lower versions, and in all other APIs,
INVALID_PRODUCER_EPOCH is sent.
"""
FIRST_TRANSACTION_ABORTABLE: Final[Mapping[ApiKey, int]] = {
    ApiKey.PRODUCE: 11,
    ApiKey.INIT_PRODUCER_ID: 5,
    ApiKey.ADD_PARTITIONS_TO_TXN: 5,
    ApiKey.ADD_OFFSETS_TO_TXN: 4,
    ApiKey.END_TXN: 4,
    ApiKey.TXN_OFFSET_COMMIT: 4,
}
"""First version of each API whose clients know TRANSACTION_ABORTABLE (KIP-890); in lower versions INVALID_TXN_STATE is
sent.
"""


def code_for(key: int, version: int, code: ErrorCode) -> ErrorCode:
    """Return the error code that is sent for `code` in this version of this API; this is `code` itself if the client
    knows it.
    """
    if code is ErrorCode.PRODUCER_FENCED and version < FIRST_PRODUCER_FENCED.get(ApiKey(key), version + 1):
        return ErrorCode.INVALID_PRODUCER_EPOCH
    if code is ErrorCode.TRANSACTION_ABORTABLE and version < FIRST_TRANSACTION_ABORTABLE.get(ApiKey(key), 0):
        return ErrorCode.INVALID_TXN_STATE
    return code
