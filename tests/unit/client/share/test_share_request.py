"""Requests of a share session: its epochs, and the partitions that each request adds and removes."""

from __future__ import annotations

from oncelog.config import ShareConsumerConfig, load
from oncelog.share.share_request import FIRST_EPOCH, MAX_EPOCH, IdPartition, ShareSession
from oncelog_protocol.messages.share_fetch import CLOSE_SESSION, OPEN_SESSION, AcknowledgeType, ShareFetchRequest

A, B = b"a" * 16, b"b" * 16


def session() -> ShareSession:
    return ShareSession(load(ShareConsumerConfig, "127.0.0.1:9092", {"group_id": "g"}), "m")


def named(request: ShareFetchRequest) -> set[IdPartition]:
    return {(topic.topic_id, each.partition_index) for topic in request.topics for each in topic.partitions}


def forgotten(request: ShareFetchRequest) -> set[IdPartition]:
    return {(topic.topic_id, index) for topic in request.forgotten_topics_data for index in topic.partitions}


def test_the_first_request_opens_the_session_and_later_ones_name_changes() -> None:
    share = session()
    first = share.fetch([(A, 0), (A, 1)], {})
    assert (first.share_session_epoch, named(first)) == (OPEN_SESSION, {(A, 0), (A, 1)})
    share.answered()
    second = share.fetch([(A, 1), (B, 0)], {})
    assert second.share_session_epoch == FIRST_EPOCH
    assert named(second) == {(B, 0)}
    assert forgotten(second) == {(A, 0)}
    share.answered()
    third = share.fetch([(A, 1), (B, 0)], {})
    assert (third.share_session_epoch, named(third), forgotten(third)) == (FIRST_EPOCH + 1, set(), set())


def test_a_partition_with_acknowledgements_is_named_again() -> None:
    share = session()
    share.fetch([(A, 0)], {})
    share.answered()
    request = share.fetch([(A, 0)], {(A, 0): {4: AcknowledgeType.ACCEPT, 5: AcknowledgeType.ACCEPT}})
    (batch,) = request.topics[0].partitions[0].acknowledgement_batches
    assert (batch.first_offset, batch.last_offset, batch.acknowledge_types) == (4, 5, [AcknowledgeType.ACCEPT])


def test_a_lost_session_is_opened_anew_with_all_partitions() -> None:
    share = session()
    share.fetch([(A, 0)], {})
    share.answered()
    assert share.is_open
    share.lost()
    assert not share.is_open
    assert named(share.fetch([(A, 0)], {})) == {(A, 0)}


def test_the_epoch_after_the_highest_one_is_the_first() -> None:
    share = session()
    share._epoch = MAX_EPOCH
    share.answered()
    assert share.acknowledge({}).share_session_epoch == FIRST_EPOCH


def test_a_renewal_is_marked_and_a_closing_request_says_so() -> None:
    share = session()
    assert share.acknowledge({(A, 0): {1: AcknowledgeType.RENEW}}).is_renew_ack
    closing = share.acknowledge({(A, 0): {1: AcknowledgeType.ACCEPT}}, closes=True)
    assert (closing.share_session_epoch, closing.is_renew_ack) == (CLOSE_SESSION, False)
