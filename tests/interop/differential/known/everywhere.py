"""Known differences in the responses of many scenarios."""

from __future__ import annotations

from typing import Final

from tests.interop.differential.register import EVERYWHERE, Known

KNOWN: Final = (
    Known("error-texts", EVERYWHERE, "*error_message", seen_in="produce.duplicates"),
    Known("refused-batch-start", EVERYWHERE, "log_start_offset", ours=-1, api="Produce", seen_in="produce.versions"),
    Known("duplicate-append-time", EVERYWHERE, "log_append_time_ms", "now", -1, "Produce", seen_in="produce.versions"),
    Known("validated-topic-id", EVERYWHERE, "topic_id", "an id", "no id", "CreateTopics", seen_in="topics.numbers"),
)
