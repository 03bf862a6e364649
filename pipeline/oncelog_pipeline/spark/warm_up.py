"""Does, in the template process, work that each forked process would otherwise do at its first request.

A message's codec is compiled at its first use, in 1 to 4 ms. A stream has its own planning process for each query,
which sends six kinds of requests, so compiling would take half of the CPU of a short query's planning. The versions
compiled here are those that a broker of this release and new brokers of Apache Kafka have; older versions are compiled
at their first use.
"""

from __future__ import annotations

from typing import Any, Final

from oncelog.config import AdminConfig, ConsumerConfig, ProducerConfig, declared_types
from oncelog.connection.protocol import exchange
from oncelog.connection.versions import FIRST_TRY, highest_used
from oncelog.prepared_transaction import FIRST_INIT_WITH_TWO_PHASE_COMMIT
from oncelog_protocol.messages.api_versions import ApiVersionsRequest
from oncelog_protocol.messages.describe_transactions import DescribeTransactionsRequest
from oncelog_protocol.messages.end_txn import EndTxnRequest
from oncelog_protocol.messages.fetch import FetchRequest
from oncelog_protocol.messages.find_coordinator import FindCoordinatorRequest
from oncelog_protocol.messages.init_producer_id import InitProducerIdRequest
from oncelog_protocol.messages.list_offsets import ListOffsetsRequest
from oncelog_protocol.messages.list_transactions import ListTransactionsRequest
from oncelog_protocol.messages.metadata import MetadataRequest
from oncelog_protocol.messages.offset_commit import OffsetCommitRequest
from oncelog_protocol.messages.offset_fetch import OffsetFetchRequest
from oncelog_protocol.messages.produce import ProduceRequest
from oncelog_protocol.messages.txn_offset_commit import TxnOffsetCommitRequest

REQUESTS: Final[tuple[Any, ...]] = (
    DescribeTransactionsRequest,
    EndTxnRequest,
    FetchRequest,
    FindCoordinatorRequest,
    InitProducerIdRequest,
    ListOffsetsRequest,
    ListTransactionsRequest,
    MetadataRequest,
    OffsetCommitRequest,
    OffsetFetchRequest,
    ProduceRequest,
    TxnOffsetCommitRequest,
)
"""The requests that queries send in every batch, besides ApiVersions."""


def warm_up() -> None:
    """Compile the codecs of REQUESTS and ApiVersions, and resolve the types of the clients' options."""
    exchange(ApiVersionsRequest, FIRST_TRY)
    # Brokers without two-phase commit do not offer the last version.
    exchange(InitProducerIdRequest, FIRST_INIT_WITH_TWO_PHASE_COMMIT - 1)
    for request in REQUESTS:
        exchange(request, highest_used(request))
    for config in (AdminConfig, ConsumerConfig, ProducerConfig):
        declared_types(config)
