"""What is known not to be true today. Whoever mends it takes it from here."""

from __future__ import annotations

PENDING_LATENCY = ""
"""Why an honest client must wait beside the fuzzer; "" once it need not."""

PENDING_ERRORS: tuple[tuple[str, str], ...] = (
    ("members without a common protocol were let in", "a JoinGroup that names a protocol twice"),
)
"""A part of a line of the broker's log, and what brings it there."""
