"""Builds the requests of a share session. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Final

from oncelog.config import ShareConsumerConfig
from oncelog.share.acknowledgements import batches_of
from oncelog_protocol.messages.share_acknowledge import ShareAcknowledgeRequest
from oncelog_protocol.messages.share_fetch import (
    CLOSE_SESSION,
    OPEN_SESSION,
    AcknowledgeType,
    AcquireMode,
    ShareFetchRequest,
)

IdPartition = tuple[bytes, int]
"""Topic id and partition number."""
Said = Mapping[IdPartition, Mapping[int, AcknowledgeType]]
"""Acknowledgements by partition and offset."""

FIRST_EPOCH: Final = 1
MAX_EPOCH: Final = 2**31 - 1
ACQUIRE_MODES: Final = {"batch_optimized": AcquireMode.BATCH_OPTIMIZED, "record_limit": AcquireMode.RECORD_LIMIT}

FetchTopic = ShareFetchRequest.FetchTopic
AckTopic = ShareAcknowledgeRequest.AcknowledgeTopic


class ShareSession:
    """The session of a member with one broker: its epoch, and the partitions that the broker knows as part of the
    session.
    """

    __slots__ = ("_config", "_epoch", "_known", "_member_id")

    def __init__(self, config: ShareConsumerConfig, member_id: str) -> None:
        self._config = config
        self._member_id = member_id
        self._epoch = OPEN_SESSION
        self._known: set[IdPartition] = set()

    @property
    def is_open(self) -> bool:
        return self._epoch != OPEN_SESSION

    def lost(self) -> None:
        """Open a new session with the next request, because the broker may have lost this session."""
        self._epoch = OPEN_SESSION
        self._known.clear()

    def answered(self) -> None:
        """Raise the session epoch after a request that the broker has served."""
        self._epoch = FIRST_EPOCH if self._epoch == MAX_EPOCH else self._epoch + 1

    def fetch(self, wanted: Iterable[IdPartition], said: Said) -> ShareFetchRequest:
        """Build a request that acquires records of `wanted` and sends acknowledgements; before the session is open,
        there are no acknowledgements to send.
        """
        config = self._config
        assert self.is_open or not said
        partitions = set(wanted)
        added, gone = partitions - self._known, self._known - partitions
        self._known = partitions
        return ShareFetchRequest(
            group_id=config.group_id,
            member_id=self._member_id,
            share_session_epoch=self._epoch,
            max_wait_ms=config.fetch_max_wait_ms,
            min_bytes=config.fetch_min_bytes,
            max_bytes=config.fetch_max_bytes,
            max_records=config.max_poll_records,
            batch_size=config.max_poll_records,
            share_acquire_mode=ACQUIRE_MODES[config.share_acquire_mode],
            topics=[
                FetchTopic(
                    topic_id=topic_id,
                    partitions=[
                        FetchTopic.FetchPartition(
                            partition_index=index,
                            acknowledgement_batches=[
                                FetchTopic.FetchPartition.AcknowledgementBatch(
                                    first_offset=first, last_offset=last, acknowledge_types=list(types)
                                )
                                for first, last, types in batches_of(said.get((topic_id, index), {}))
                            ],
                        )
                        for index in indexes
                    ],
                )
                for topic_id, indexes in _by_topic({*added, *said}).items()
            ],
            forgotten_topics_data=[
                ShareFetchRequest.ForgottenTopic(topic_id=topic_id, partitions=indexes)
                for topic_id, indexes in _by_topic(gone).items()
            ],
        )

    def acknowledge(self, said: Said, *, closes: bool = False) -> ShareAcknowledgeRequest:
        """Build a request that sends acknowledgements and, with `closes`, closes the session, which releases all other
        records.
        """
        renews = any(kind is AcknowledgeType.RENEW for kinds in said.values() for kind in kinds.values())
        return ShareAcknowledgeRequest(
            group_id=self._config.group_id,
            member_id=self._member_id,
            share_session_epoch=CLOSE_SESSION if closes else self._epoch,
            is_renew_ack=renews,
            topics=[
                AckTopic(
                    topic_id=topic_id,
                    partitions=[
                        AckTopic.AcknowledgePartition(
                            partition_index=index,
                            acknowledgement_batches=[
                                AckTopic.AcknowledgePartition.AcknowledgementBatch(
                                    first_offset=first, last_offset=last, acknowledge_types=list(types)
                                )
                                for first, last, types in batches_of(said[topic_id, index])
                            ],
                        )
                        for index in indexes
                    ],
                )
                for topic_id, indexes in _by_topic(said).items()
            ],
        )


def _by_topic(partitions: Iterable[IdPartition]) -> dict[bytes, list[int]]:
    grouped: dict[bytes, list[int]] = {}
    for topic_id, index in sorted(partitions):
        grouped.setdefault(topic_id, []).append(index)
    return grouped
