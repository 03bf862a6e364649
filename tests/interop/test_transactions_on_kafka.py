"""Tests transactions of oncelog's client against Apache Kafka itself, V1 with 3.9 and V2 with 4.1; librdkafka runs
beside it to show that the tests require Kafka's behaviour.
"""

from __future__ import annotations

import pytest
from apache_kafka import ApacheKafka
from test_oncelog_transactions import (  # noqa: F401
    producing,
    test_e1_a_commit_with_a_lost_answer_is_repeated_safely,
    test_s27_s38_a_failed_send_aborts_all,
    test_s35_many_transactions_are_committed,
    test_s46_a_consumer_that_is_behind_commits_nothing,
)
from test_transactional_clients import (  # noqa: F401
    producer,
    reader,
    test_s37_s60_offsets_are_committed_with_the_records,
    test_s41_the_second_producer_with_a_transactional_id_fences_the_first,
    test_s53_s54_each_library_reads_exactly_what_was_committed,
    test_s60_records_are_consumed_processed_and_produced_once,
    test_transactions_span_many_partitions,
)
from transactional_clients import PRODUCERS, TransactionalProducer


@pytest.fixture
def address(apache_kafka: ApacheKafka) -> str:
    return apache_kafka.address


@pytest.fixture(params=["oncelog", "librdkafka"])
def library(request: pytest.FixtureRequest) -> type[TransactionalProducer]:
    return PRODUCERS[request.param]


@pytest.fixture
def level() -> None:
    """Test with the transaction version (V1 or V2) that the Apache Kafka cluster has; do not change it."""


@pytest.fixture(params=["oncelog"])
def name(request: pytest.FixtureRequest) -> str:
    return str(request.param)
