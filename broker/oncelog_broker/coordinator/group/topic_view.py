"""An immutable view of the topics in the cluster for groups: names, ids, numbers of partitions, and racks.

`changed` returns a new view only if a property of topics on which assignments depend has changed. So a group that has
checked the topics of a view need not check them again as long as it gets the same view object.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from hashlib import blake2b
from typing import Final

from oncelog_broker.metadata.model.image import ClusterImage, Topic

HASH_BYTES: Final = 8


class TopicView:
    """The topics of the cluster with the properties on which assignments depend. Successive views share the same
    `names_of_topics` object until a topic is created or deleted."""

    __slots__ = ("_hashes", "_image", "_racks", "names_of_topics")

    def __init__(self, image: ClusterImage, before: TopicView | None = None) -> None:
        self._image = image
        self._racks = _racks(image)
        self._hashes: dict[str, tuple[Topic, bytes]] = {}
        self.names_of_topics: Collection[str] = image.topics.keys()
        """The names of all topics; treat as read-only."""
        if before is not None:
            if before._racks == self._racks:
                self._hashes = before._hashes
            if before.names_of_topics == self.names_of_topics:
                self.names_of_topics = before.names_of_topics

    def changed(self, image: ClusterImage) -> TopicView:
        """Return the view of the topics in a newer cluster image. Returns this view object itself if no input of
        assignments has changed.
        """
        if _racks(image) != self._racks:
            return TopicView(image, self)
        changes = image.topic_changes_since(self._image)
        if changes.removed or any(map(self._differs, changes.changed)):
            return TopicView(image, self)
        self._image = image  # nothing has changed, so all cached results of this view are still correct
        return self

    def _differs(self, topic: Topic) -> bool:
        before = self._image.topics.get(topic.name)
        if before is None or before.topic_id != topic.topic_id or len(before.partitions) != len(topic.partitions):
            return True
        if self._racks:
            known = before.partitions
            for partition, state in topic.partitions.items():
                as_before = known[partition]
                # Compare the objects first, because an image has all unchanged states of the earlier image.
                if state is not as_before and state.replicas != as_before.replicas:
                    return True
        return False

    def id_of(self, name: str) -> bytes | None:
        topic = self._image.topics.get(name)
        return None if topic is None else topic.topic_id

    def ids_of(self, names: Iterable[str]) -> frozenset[bytes]:
        """Return the ids of the existing topics among these names."""
        topics = self._image.topics
        return frozenset(topics[name].topic_id for name in names if name in topics)

    def name_of(self, topic_id: bytes) -> str | None:
        return self._image.names_by_id.get(topic_id)

    def partitions_of_name(self, name: str) -> int | None:
        """Return the number of partitions of the topic with this name; None if the topic does not exist."""
        topic = self._image.topics.get(name)
        return None if topic is None else len(topic.partitions)

    def partitions_of(self, topic_id: bytes) -> int:
        """Return the number of partitions of the topic; 0 if the topic does not exist."""
        topic = self._image.topic_by_id(topic_id)
        return 0 if topic is None else len(topic.partitions)

    def hash_of(self, names: Iterable[str]) -> int:
        """Return a signed 64-bit hash of all properties of these topics on which an assignment depends. The hash is
        compared only with other results of this function, so it may differ from the hash of Kafka's broker. The hash is
        0 if none of the topics exists.
        """
        digest = blake2b(digest_size=HASH_BYTES)
        found = False
        topics = self._image.topics
        for name in sorted(name for name in names if name in topics):  # many names may be unknown
            digest.update(self._hash_of(topics[name]))
            found = True
        return int.from_bytes(digest.digest(), signed=True) if found else 0

    def _hash_of(self, topic: Topic) -> bytes:
        known = self._hashes.get(topic.name)
        if known is not None and known[0] is topic:
            return known[1]
        digest = blake2b(topic.topic_id, digest_size=HASH_BYTES)
        digest.update(topic.name.encode())
        digest.update(len(topic.partitions).to_bytes(8))
        if self._racks:
            racks: dict[tuple[int, ...], bytes] = {}
            for partition in sorted(topic.partitions):
                replicas = topic.partitions[partition].replicas
                if replicas not in racks:
                    racks[replicas] = "\0".join(sorted({self._racks.get(broker, "") for broker in replicas})).encode()
                digest.update(racks[replicas] + b"\n")
        self._hashes[topic.name] = (topic, digest.digest())
        return digest.digest()


def _racks(image: ClusterImage) -> Mapping[int, str]:
    return {broker.id: broker.rack for broker in image.brokers.values() if broker.rack is not None}
