"""What the console takes and shows at most. All of it is bounded: who looks harms neither cluster nor console."""

from __future__ import annotations

from typing import Final

# --- who asks

MAX_CONNECTIONS: Final = 64
"""Open at a time, live tails among them; who comes beyond that takes the place of who has waited longest with no whole
request."""
HEAD_SECONDS: Final = 20.0
"""From when a connection is open, or its last answer complete, to when the next request is there."""
MAX_FORM_BYTES: Final = 256 * 1024
FORM_SECONDS: Final = 10.0
MAX_FORM_FIELDS: Final = 32
SEND_SECONDS: Final = 30.0
"""How long the browser may take nothing of an answer before the answer ends."""
PAGE_SECONDS: Final = 20.0
"""How long all requests of one page to the cluster may take together."""
MAX_PAGES: Final = 8
"""How many pages may ask the cluster at the same time; further ones wait for their turn."""
MAX_TAILS: Final = 8
TAIL_SECONDS: Final = 3600.0
"""How long one live tail lasts, in seconds; then the browser connects again, if the page is still open."""

# --- what is asked of the cluster

CALL_TIMEOUT_MS: Final = 8_000
SHARED_SECONDS: Final = 1.5
"""What several look at is asked for once in this time."""
MAX_SEARCHED_PARTITIONS: Final = 5_000
"""Beyond that nobody looks into all partitions for hanging transactions at each turn."""
MAX_TRANSACTIONS: Final = 100
"""Open ones that are described."""
MAX_EXPLAINED: Final = 100
"""Partitions."""
MAX_HOLDS: Final = 50
"""Partitions that are shown of one transaction."""

SAMPLE_SECONDS: Final = 5.0
SAMPLES: Final = 720
"""Of the lag of a group: an hour."""
MAX_SAMPLED_GROUPS: Final = 200

# --- asking Spark drivers for metrics

MAX_SAMPLED_QUERIES: Final = 100
METRICS_SECONDS: Final = 8.0
"""How long a driver may take to answer with its metrics."""
MAX_METRICS_BYTES: Final = 4 * 1024 * 1024
"""The longest answer of one driver."""

# --- what is shown

MAX_ROWS: Final = 500
"""Of a table."""
PAGE_RECORDS: Final = 50
MAX_PAGE_PARTITIONS: Final = 32
"""Of a topic, when all of its partitions are read at once."""
PAGE_BYTES: Final = 2 * 1024 * 1024
"""Fetched for a page of records."""
SCAN_BYTES: Final = 16 * 1024 * 1024
SCAN_SECONDS: Final = 5.0
"""For a search by key, then it asks whether to go on."""
MAX_BATCH_BYTES: Final = 16 * 1024 * 1024
"""What one batch may decompress to."""
MAX_BATCH_RECORDS: Final = 200_000
"""Of one batch; each is an object here."""
TAIL_BYTES: Final = 256 * 1024
"""Fetched at once by a tail."""
TAIL_RECORDS: Final = 100
"""Sent to the browser at once; what came beyond that is counted."""

KEY_BYTES: Final = 200
VALUE_BYTES: Final = 600
"""Of a value in a table."""
RECORD_BYTES: Final = 64 * 1024
"""Of the value of the one record that is looked at."""
MAX_HEADERS: Final = 100
NAME_CHARACTERS: Final = 120
"""Of a name in a table: a group may have one of 32767."""
MAX_SHOWN_CHARACTERS: Final = 100_000
"""Of anything."""

PICTURE_OFFSETS: Final = 400
PICTURE_BATCHES: Final = 400
PICTURE_BYTES: Final = 4 * 1024 * 1024
LANES: Final = 12
"""Producers with a line of their own in the picture of a log."""
