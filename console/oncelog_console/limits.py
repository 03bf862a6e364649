"""The limits of the console, so that a visitor can harm neither the cluster nor the console."""

from __future__ import annotations

from typing import Final

# Limits on connections, sessions and logins.

MAX_CONNECTIONS: Final = 64
"""Limit on open connections, including live tails; a new connection closes the connection that was idle longest."""
HEAD_SECONDS: Final = 20.0
"""Seconds from the opening of a connection, or from the end of its last response, to a complete request head."""
MAX_FORM_BYTES: Final = 256 * 1024
FORM_SECONDS: Final = 10.0
MAX_FORM_FIELDS: Final = 32
SEND_SECONDS: Final = 30.0
"""Seconds after which a response is aborted if the browser has read no bytes of it."""
PAGE_SECONDS: Final = 20.0
"""Limit in seconds on the time that one page waits for the cluster, for all of the page's requests together."""
MAX_PAGES: Final = 8
"""Limit on the pages that query the cluster concurrently; further pages wait."""
MAX_TAILS: Final = 8
TAIL_SECONDS: Final = 3600.0
"""Seconds after which the response of a live tail (a page with new records) ends; the browser then reconnects, if the
page is still open.
"""

# --- logins

MAX_SESSIONS: Final = 50
"""Limit on the sessions of users who have logged in; each keeps connections to clusters."""
MAX_SESSIONS_OF_USER: Final = 5
MAX_SESSION_SECONDS: Final = 8 * 3600.0
IDLE_SECONDS: Final = 1800.0
"""Seconds after its last request when a session ends."""
SWEEP_SECONDS: Final = 30.0
MAX_LOGINS: Final = 2
"""Limit on the logins whose password is checked concurrently; further logins wait."""
FAILED_LOGIN_SECONDS: Final = 1.0
"""Seconds before a failed login gets its response, so that passwords are guessed slowly."""
MAX_NAME_CHARACTERS: Final = 256
MAX_PASSWORD_CHARACTERS: Final = 1024
PROVIDER_SECONDS: Final = 10.0
"""Seconds in which an identity provider must respond."""
MAX_PROVIDER_BYTES: Final = 1024 * 1024
"""Limit in bytes on a response of an identity provider."""
LOGIN_SECONDS: Final = 600
"""Limit in seconds on the time that a user spends at the identity provider during a login."""

# Limits on requests to the cluster.

CALL_TIMEOUT_MS: Final = 8_000
SHARED_SECONDS: Final = 1.5
"""Seconds for which a loaded value is shared by several pages."""
MAX_SEARCHED_PARTITIONS: Final = 5_000
"""Limit on the partitions that are searched for hanging transactions."""
MAX_TRANSACTIONS: Final = 100
"""Limit on the open transactions whose producer and coordinator state a page shows."""
MAX_EXPLAINED: Final = 100
"""Limit on the partitions for which a page explains which transaction blocks their readers."""
MAX_HOLDS: Final = 50
"""Limit on the partitions that are shown of one transaction."""

SAMPLE_SECONDS: Final = 5.0
SAMPLES: Final = 720
"""Number of samples of a group's lag that are kept, enough for an hour."""
MAX_SAMPLED_GROUPS: Final = 200

# Limits on requests to Spark drivers for metrics.

MAX_SAMPLED_QUERIES: Final = 100
METRICS_SECONDS: Final = 8.0
"""Seconds in which a driver must respond with its metrics."""
MAX_METRICS_BYTES: Final = 4 * 1024 * 1024
"""Limit in bytes on the response of one driver."""

# Limits on requests to Kafka Connect.

CONNECT_SECONDS: Final = 8.0
"""Seconds in which a Kafka Connect must respond."""
MAX_CONNECT_BYTES: Final = 2 * 1024 * 1024
MAX_CONNECTORS: Final = 500

# Limits on what one page contains.

MAX_ROWS: Final = 500
"""Limit on the rows of a table."""
PAGE_RECORDS: Final = 50
MAX_PAGE_PARTITIONS: Final = 32
"""Limit on the partitions of a topic that one page reads."""
PAGE_BYTES: Final = 2 * 1024 * 1024
"""Limit on the bytes that are fetched for one page of records."""
SCAN_BYTES: Final = 16 * 1024 * 1024
SCAN_SECONDS: Final = 5.0
"""Seconds after which a search by key pauses and the page asks whether to continue."""
MAX_BATCH_BYTES: Final = 16 * 1024 * 1024
"""Limit in bytes on one batch after decompression."""
MAX_BATCH_RECORDS: Final = 200_000
"""Limit on the records of one batch, because each becomes an object."""
TAIL_BYTES: Final = 256 * 1024
"""Limit in bytes on one fetch of a live tail (a page that shows new records)."""
TAIL_RECORDS: Final = 100
"""Limit on the records in one message of a live tail to the browser; further records are only counted."""

# Limits on the decoding of values.

MAX_WORKERS: Final = 2
"""Limit on the worker processes that decode values."""
TASK_SECONDS: Final = 5.0
"""Seconds that one task of a worker process may take."""
TASK_BYTES: Final = 1024 * 1024
"""Limit in bytes on all values of one task; a task with a single value may be larger."""
WORKER_BYTES: Final = 1024 * 1024 * 1024
"""Limit on the address space of a worker process, in bytes."""
MAX_TEXTS_CHARACTERS: Final = 8 * 1024 * 1024
"""Limit on the characters of all values that one task returns as JSON."""
MAX_SCHEMAS: Final = 20
"""Limit on the schemas of a registry that the values of one page may need."""
REGISTRY_SECONDS: Final = 8.0
"""Limit in seconds on the time in which a schema registry must return one schema with its references."""

# --- downloads

DOWNLOAD_BYTES: Final = 32 * 1024 * 1024
"""Limit on the bytes of keys, values and headers of all records in a download."""

# Limits on the texts that pages show.

KEY_BYTES: Final = 200
VALUE_BYTES: Final = 600
"""Limit on the bytes of a value that a table shows."""
RECORD_BYTES: Final = 64 * 1024
"""Limit on the bytes of the value that the page of a single record shows."""
MAX_HEADERS: Final = 100
NAME_CHARACTERS: Final = 120
"""Limit on the characters of a name that a table shows, because group names may have 32767 characters."""
MAX_SHOWN_CHARACTERS: Final = 100_000
"""Limit on the characters of any single text that a page shows."""

PICTURE_OFFSETS: Final = 400
PICTURE_BATCHES: Final = 400
PICTURE_BYTES: Final = 4 * 1024 * 1024
LANES: Final = 12
"""Maximum number of producers that have their own lane in the picture of a log."""
