"""Creates topics without a client's CreateTopics request: auto-created topics, the internal topics of coordinators, and
the internal topics of streams groups.

Only the controller creates topics. Another broker sends CreateTopics to the controller, as a client would, and then
waits until its own cluster image shows the topic.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from typing import Final

from oncelog_broker.config import broker_keys as keys
from oncelog_broker.config.alter import check_topic_overrides
from oncelog_broker.config.broker_config import BrokerConfig
from oncelog_broker.controller.topics import TopicController, too_many
from oncelog_broker.coordinator.internal_topics import InternalTopic, internal_topic
from oncelog_broker.metadata.model.cache import MetadataCache
from oncelog_broker.replication.peers import Peers, PeerUnavailable, Purpose
from oncelog_broker.replication.replicas import Replicas
from oncelog_broker.server.request.wait_for_metadata import wait_until_usable
from oncelog_protocol.errors import ErrorCode, KafkaError

logger = logging.getLogger(__name__)

TIMEOUT_MS: Final = 30_000
"""Timeout in ms for the creation of a topic; the wait until this broker can use the topic has the same timeout."""


class TopicCreation:
    """Creates auto-created topics, internal topics of coordinators, and internal topics of streams groups, through the
    controller. `may_degrade`: whether internal topics may have fewer replicas than configured.
    """

    def __init__(
        self,
        config: Callable[[], BrokerConfig],
        metadata: MetadataCache,
        replicas: Replicas,
        topics: TopicController,
        peers: Peers,
        *,
        may_degrade: bool,
    ) -> None:
        self._config = config
        self._metadata = metadata
        self._replicas = replicas
        self._topics = topics
        self._peers = peers
        self._may_degrade = may_degrade
        self._too_few: dict[str, int] = {}
        """Internal topics that could not be created, each with the number of live brokers, which was below its
        replication factor.
        """

    async def create(self, name: str) -> None:
        """Create a topic with the broker's defaults, or an internal topic with its own settings, and wait until the
        topic can be used. An existing topic is not an error.

        Raises KafkaError: INVALID_TOPIC_EXCEPTION, INVALID_REPLICATION_FACTOR, COORDINATOR_NOT_AVAILABLE (too few
        brokers for an internal topic), LEADER_NOT_AVAILABLE (the controller cannot be reached), REQUEST_TIMED_OUT.
        """
        config = self._config()
        live = len(self._metadata.image.brokers)
        try:
            internal = internal_topic(name, config, live, may_degrade=self._may_degrade)
        except KafkaError as error:
            if self._too_few.get(name) != live:  # log only once for each topic, because clients retry often
                self._too_few[name] = live
                logger.warning("clients wait for a coordinator", extra={"reason": error.message})
            raise
        defaults = InternalTopic(config[keys.NUM_PARTITIONS], config[keys.DEFAULT_REPLICATION_FACTOR], {})
        partitions, replicas, overrides = internal or defaults
        await self._create_and_wait(name, partitions, replicas, overrides, 1)

    async def create_as_asked(self, name: str, partitions: int, replicas: int, overrides: Mapping[str, str]) -> None:
        """Create a topic that a client needs, with its numbers of partitions and replicas and its settings; wait until
        the topic can be used. An existing topic is no error. `replicas`: the replication factor; -1 means the broker's
        default.

        Raises KafkaError: the errors of `create`, such as COORDINATOR_NOT_AVAILABLE and REQUEST_TIMED_OUT, and
        INVALID_CONFIG, INVALID_PARTITIONS, POLICY_VIOLATION (too many partitions).
        """
        refused = too_many(partitions)
        if refused is not None:
            raise refused
        if replicas == -1:
            replicas = self._config()[keys.DEFAULT_REPLICATION_FACTOR]
        checked = check_topic_overrides(dict(overrides))
        await self._create_and_wait(name, partitions, replicas, checked, partitions)

    async def _create_and_wait(
        self, name: str, partitions: int, replicas: int, overrides: Mapping[str, str], waits_for: int
    ) -> None:
        """Create a topic, and wait until it can be used. `waits_for`: the number of partitions that the topic must have
        in the cluster image before this method returns.
        """
        try:
            await self._create(name, partitions, replicas, overrides)
        except KafkaError as error:
            if error.code is ErrorCode.NOT_CONTROLLER:
                raise KafkaError(ErrorCode.LEADER_NOT_AVAILABLE, "the controller has moved") from error
            # TOPIC_ALREADY_EXISTS means that another connection or broker has created the topic first.
            if error.code is not ErrorCode.TOPIC_ALREADY_EXISTS:
                raise
            waits_for = 1
        await wait_until_usable(self._metadata, self._replicas, name, waits_for, TIMEOUT_MS)

    async def _create(self, name: str, partitions: int, replicas: int, overrides: Mapping[str, str]) -> None:
        controller = self._metadata.image.controller_id
        if controller == self._config().node_id:
            await self._topics.create_topic(name, partitions, replicas, overrides)
            return
        # Imported here, because compiling a message takes milliseconds at start-up, and most brokers never send this
        # message.
        from oncelog_protocol.messages.create_topics import CreateTopicsRequest

        topic = CreateTopicsRequest.CreatableTopic(
            name=name,
            num_partitions=partitions,
            replication_factor=replicas,
            assignments=[],
            configs=[
                CreateTopicsRequest.CreatableTopic.CreatableTopicConfig(name=key, value=value)
                for key, value in overrides.items()
            ],
        )
        request = CreateTopicsRequest(topics=[topic], timeout_ms=TIMEOUT_MS, validate_only=False)
        try:
            answer = await self._peers.send(controller, request, purpose=Purpose.CONTROL, timeout=TIMEOUT_MS / 1000)
        except PeerUnavailable as error:
            raise KafkaError(ErrorCode.LEADER_NOT_AVAILABLE, f"the controller was not reached: {error}") from error
        (result,) = answer.topics
        if result.error_code != ErrorCode.NONE:
            raise KafkaError(ErrorCode.of(result.error_code), result.error_message)
