"""Options of a sink: the topic it writes to, and the delivery guarantee. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import Enum
from typing import Any, Final

from oncelog.config import ProducerConfig
from oncelog.errors import InvalidTopic
from oncelog.names import check_topic
from oncelog_pipeline.options import client_settings
from oncelog_pipeline.options.reading import OptionError, Options
from oncelog_pipeline.sink.names import STATE_TOPIC, write_id

STATE_OPTION: Final = "stateTopic"
KNOWN: Final = ("topic", "delivery", STATE_OPTION, "writeId", "includeHeaders")
DEFAULT_TASK_TIMEOUT_MS: Final = 900_000
"""The default transaction timeout in milliseconds: the longest that brokers allow by default
(transaction.max.timeout.ms). A batch must be finished within this time, also if the query is restarted during the
batch.
"""


class Delivery(Enum):
    """What the sink guarantees to readers of the written records, whichever process is killed."""

    EXACTLY_ONCE = "exactly-once"
    EXACTLY_ONCE_PER_TASK = "exactly-once-per-task"
    AT_LEAST_ONCE = "at-least-once"


@dataclass(frozen=True, slots=True)
class SinkOptions:
    """All settings of a sink. The fields are plain values, so that Spark can pickle the options. The option `topic`
    overrides the column "topic".
    """

    bootstrap_servers: str
    topic: str | None
    delivery: Delivery = Delivery.EXACTLY_ONCE
    state_topic: str = STATE_TOPIC
    write_id: str | None = None
    task_timeout_ms: int = DEFAULT_TASK_TIMEOUT_MS
    settings: Mapping[str, Any] = field(default_factory=dict)
    """Keyword arguments that all of oncelog's clients accept."""
    producer_settings: Mapping[str, Any] = field(default_factory=dict)
    """Keyword arguments of `oncelog.Producer`."""

    @property
    def patience_seconds(self) -> float:
        """Return how many seconds to wait for an unreachable broker, also at the first connection: max.block.ms."""
        return ProducerConfig(bootstrap_servers=self.bootstrap_servers, **self.producer_settings).max_block_ms / 1000


def sink_options(given: Mapping[str, str]) -> SinkOptions:
    """Convert the user's options of a sink. Raises OptionError."""
    options = Options(given, KNOWN)
    found = client_settings.settings(options, client_settings.PRODUCER)
    if found.get("enable_idempotence") is False:
        raise OptionError("kafka.enable.idempotence=false: every delivery here needs it")
    # Report options that exclude each other here, when the query is planned, and not later in each task. The call
    # passes enable_idempotence explicitly, because the client would otherwise disable idempotence silently instead of
    # reporting the conflict.
    client_settings.check_together(options, client_settings.PRODUCER, {**found, "enable_idempotence": True})
    task_timeout_ms = found.pop("transaction_timeout_ms", DEFAULT_TASK_TIMEOUT_MS)
    # Read it only to check it: it has no effect on a sink, as in Spark's connector.
    options.flag("includeHeaders", False)
    if "writeId" in options:
        options.parsed("writeId", write_id)
    for name in ("topic", STATE_OPTION):
        if name in options:
            options.parsed(name, _topic)
    delivery = options.choice("delivery", [each.value for each in Delivery], Delivery.EXACTLY_ONCE.value)
    return SinkOptions(
        client_settings.bootstrap_servers(options),
        options.text("topic", None),
        Delivery(delivery),
        options.text(STATE_OPTION, STATE_TOPIC),
        options.text("writeId", None),
        task_timeout_ms,
        client_settings.common(found),
        found,
    )


def _topic(name: str) -> str:
    try:
        check_topic(name)
    except InvalidTopic as error:
        raise ValueError(error.message) from error
    return name
