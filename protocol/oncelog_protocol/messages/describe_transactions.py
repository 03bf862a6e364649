"""DescribeTransactions (65): describes the state of transactional ids (KIP-664)."""

from __future__ import annotations

from oncelog_protocol.schema import OWN_TAGS, Request, array, int16, int32, int64, message, string, struct


@message(api_key=65, versions="0", flexible="0+")
class DescribeTransactionsRequest(Request["DescribeTransactionsResponse"]):
    """Describe transactional ids; the request goes to their coordinator."""

    transactional_ids: list[str] = array(of=string())


@message(api_key=65, versions="0", flexible="0+")
class DescribeTransactionsResponse:
    """The response has one entry per transactional id.

    Errors of an id: COORDINATOR_NOT_AVAILABLE, NOT_COORDINATOR, COORDINATOR_LOAD_IN_PROGRESS,
    TRANSACTIONAL_ID_NOT_FOUND, TRANSACTIONAL_ID_AUTHORIZATION_FAILED. Topics that the caller may not describe are
    omitted.

    client_id and client_host are oncelog's own fields; Kafka's brokers do not send them.
    """

    throttle_time_ms: int = int32(default=0)
    transaction_states: list[TransactionState] = array()

    @struct
    class TransactionState:
        error_code: int = int16()
        transactional_id: str = string()
        # name of the state (S33): Empty, Ongoing, PrepareCommit, PrepareAbort, CompleteCommit or CompleteAbort
        transaction_state: str = string()
        transaction_timeout_ms: int = int32()
        transaction_start_time_ms: int = int64()  # start time in ms; -1 if no transaction is open
        producer_id: int = int64()
        producer_epoch: int = int16()
        topics: list[TopicData] = array()  # the partitions to which the open transaction has written
        # the last client that took over the transactional id or ended a transaction of it; None: none since this
        # coordinator started
        client_id: str | None = string(nullable="0+", default=None, tag=OWN_TAGS)
        client_host: str | None = string(nullable="0+", default=None, tag=OWN_TAGS + 1)

        @struct
        class TopicData:
            topic: str = string()
            partitions: list[int] = array(of=int32())
