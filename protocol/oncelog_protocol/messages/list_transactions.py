"""ListTransactions (66): lists the transactional ids that this broker coordinates (KIP-664)."""

from __future__ import annotations

from oncelog_protocol.schema import Request, array, int16, int32, int64, message, string, struct


@message(api_key=66, versions="0-2", flexible="0+")
class ListTransactionsRequest(Request["ListTransactionsResponse"]):
    """List transactional ids. An empty filter matches all transactional ids.

    v1: duration_filter (KIP-994).
    v2: transactional_id_pattern (KIP-1152).
    """

    state_filters: list[str] = array(of=string())  # names of states, as in DescribeTransactions
    producer_id_filters: list[int] = array(of=int64())
    duration_filter: int = int64("1+", default=-1)  # minimum age in ms; below 0: no filter
    # a regular expression (RE2) for the entire id; None or "": no filter
    transactional_id_pattern: str | None = string("2+", nullable="2+", default=None)


@message(api_key=66, versions="0-2", flexible="0+")
class ListTransactionsResponse:
    """The transactional ids that the responding broker coordinates; to list all ids, send the request to every broker.

    Errors: COORDINATOR_NOT_AVAILABLE, COORDINATOR_LOAD_IN_PROGRESS, INVALID_REGULAR_EXPRESSION (v2).
    """

    throttle_time_ms: int = int32(default=0)
    error_code: int = int16()
    # unknown state names in the states filter of the request
    unknown_state_filters: list[str] = array(of=string())
    transaction_states: list[TransactionState] = array()

    @struct
    class TransactionState:
        transactional_id: str = string()
        producer_id: int = int64()
        transaction_state: str = string()
