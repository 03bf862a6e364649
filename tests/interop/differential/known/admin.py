"""Known differences in topics, configurations, metadata and versions."""

from __future__ import annotations

from typing import Final

from tests.interop.differential.comparison import ABSENT
from tests.interop.differential.register import Known

ERROR: Final = "error_code"

NOT_SERVED: Final = (
    *("DescribeQuorum", "InitializeShareGroupState", "ReadShareGroupState"),
    *("WriteShareGroupState", "DeleteShareGroupState", "ReadShareGroupStateSummary"),
)

KNOWN: Final = (
    # topics
    Known("colliding-names", "topics.colliding_pair", ERROR, 0, 17),
    Known("colliding-names", "cluster.automatic_creation", ERROR, 3, 17, label="collides"),
    Known("automatic-creation", "cluster.automatic_creation", ERROR, 3, 0, label="asked for"),
    Known("named-twice", "topics.names", "topics", label="twice"),
    Known("named-twice", "topics.more_partitions", "results", label="topic twice"),
    Known("named-twice", "cluster.topics_by_id", "topics", label="name and id of one"),
    Known("deleted-twice", "topics.deleting_twice", "responses", label="* twice"),
    Known("deleted-twice", "topics.deleting_twice", ERROR, 42, 0, label="name and its id"),
    Known("deleted-twice", "topics.deleting_twice", "responses.*", ABSENT, label="name and its id"),
    Known("which-number-first", "topics.numbers", ERROR, 38, 37),
    Known("internal-topics-grow", "topics.more_partitions_of_internal_topics", ERROR, 0, 17),
    # configurations
    Known("small-segments", "configs.values", ERROR, 40, 0, label="segment.bytes=1000000*"),
    Known("controller-stands", "configs.unknown_operation", ERROR, -1, 42),
    Known("bad-broker-values", "configs.altering_others", ERROR, 42, 40, label="*bad value"),
    Known("unknown-keys", "configs.values", ERROR, 0, 40, label="internal.*"),
    Known("unknown-keys", "configs.altering_others", ERROR, 0, 40, label="broker, unknown key"),
    Known("keys-that-promise", "configs.altering_others", ERROR, 0, 40, label="all brokers, a promise"),
    Known("keys-of-a-start", "configs.altering_others", ERROR, 0, 42, label="all brokers, at a start"),
    Known("named-twice", "configs.describing", "results", label="twice"),
    Known("own-keys", "configs.of_a_new_topic", "record.validation", ABSENT),
    Known("own-keys", "configs.describing", "record.validation", ABSENT, label="empty list of keys"),
    Known("config-synonyms", "configs.describing", "synonyms.log.retention.hours", ABSENT, label="synonyms"),
    Known("source-of-min-insync", "configs.*", "min.insync.replicas.*source", 3, 5, seen_in="configs.of_a_new_topic"),
    Known("broker-defaults", "configs.of_a_broker", "0", "2147483647", "10000", label="max.connections"),
    Known("broker-defaults", "configs.of_a_broker", "0", "7", None, label="broker.id"),
    # metadata
    Known("no-name-no-id", "cluster.topics_by_id", "brokers.*", ABSENT),
    Known("no-name-no-id", "cluster.topics_by_id", "cluster_id", None),
    Known("no-name-no-id", "cluster.topics_by_id", "controller_id", -1),
    Known("no-name-no-id", "cluster.topics_by_id", ERROR, -1, 17, label="neither"),
    Known("odd-cursors", "cluster.partitions_in_pages", "topics.*", ours=ABSENT, label="cursor behind the list"),
    Known("odd-cursors", "cluster.partitions_in_pages", ERROR, 42, 0, label="cursor at partition -1"),
    Known("operations-of-the-unknown", "cluster.partitions_in_pages", "topic_authorized_operations", 3576, -(2**31)),
    Known("named-twice", "cluster.find_coordinators", "coordinators", label="*, twice"),
    # versions
    *(Known("not-served", "cluster.versions", "", ours=None, label=name) for name in NOT_SERVED),
    Known("not-served", "cluster.versions", "", ours=[], label="*.version"),
    Known("unread-metrics", "telemetry.pushes", ERROR, 0, 87, "PushTelemetry", "garbage"),
    # quotas
    Known("addresses-by-name", "quotas.entities", ERROR, 0, 42, label="address by name"),
    Known("parts-twice", "quotas.entities", ERROR, 0, 42, label="user twice"),
    Known("long-names", "quotas.entities", ERROR, 0, 42, label="long name"),
    Known("not-a-number", "quotas.values", ERROR, 0, 42, label="not a number"),
    Known("not-a-number", "quotas.values", ERROR, 0, 42, label="infinite"),
)
