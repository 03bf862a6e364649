"""Differences that many answers have."""

from __future__ import annotations

from typing import Final

from tests.interop.differential.register import EVERYWHERE, Known

KNOWN: Final = (
    Known("error-texts", EVERYWHERE, "*error_message", seen_in="produce.duplicates"),
    Known(
        "refused-batch-log-start", EVERYWHERE, "log_start_offset", ours=-1, api="Produce", seen_in="produce.duplicates"
    ),
    Known(
        "duplicate-append-time",
        EVERYWHERE,
        "log_append_time_ms",
        kafka="now",
        ours=-1,
        api="Produce",
        seen_in="produce.duplicates",
    ),
)
