"""Runs the client contract against Apache Kafka itself: with oncelog's client, and with librdkafka, which shows that
the contract requires Kafka's behaviour.
"""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from apache_kafka import ApacheKafka
from client_contract import ClientContract
from foreign_clients import ForeignClient
from librdkafka_client import Librdkafka
from oncelog_client import Oncelog
from test_client import (  # noqa: F401 - what our client is asked with our broker it is asked here too
    test_a_topic_may_come_to_be_by_use,
    test_a_waiting_consumer_gets_new_records,
    test_batches_too_large_for_the_topic_are_split,
    test_nulls_and_empty_values_are_kept_apart,
    test_order_is_kept_in_each_partition,
    test_positions_and_offsets_are_reported,
    test_records_are_sent_without_acks,
    test_sent_records_are_read_back,
    test_the_admin_client_administers_topics,
    test_the_log_append_time_is_used_where_the_topic_says_so,
)


@pytest.fixture
def broker(apache_kafka: ApacheKafka) -> ApacheKafka:
    return apache_kafka


@pytest.fixture
def address(apache_kafka: ApacheKafka) -> str:
    return apache_kafka.address


class TestOncelog(ClientContract):
    @pytest.fixture
    def client(self, apache_kafka: ApacheKafka) -> Iterator[ForeignClient]:
        client = Oncelog(apache_kafka.address)
        yield client
        client.close()


class TestLibrdkafka(ClientContract):
    @pytest.fixture
    def client(self, apache_kafka: ApacheKafka) -> Iterator[ForeignClient]:
        client = Librdkafka(apache_kafka.address)
        yield client
        client.close()
