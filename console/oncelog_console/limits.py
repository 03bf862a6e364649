"""The limits of the console: a visitor can harm neither the cluster nor the console."""

from __future__ import annotations

from typing import Final

# --- requests and clients

MAX_CONNECTIONS: Final = 64
"""Connections open at a time, live tails included; a new one closes the longest idle one."""
HEAD_SECONDS: Final = 20.0
"""Seconds from the opening of a connection, or the end of its last response, to a complete request head."""
MAX_FORM_BYTES: Final = 256 * 1024
FORM_SECONDS: Final = 10.0
MAX_FORM_FIELDS: Final = 32
SEND_SECONDS: Final = 30.0
"""How long the browser may take nothing of an answer before the answer ends."""
PAGE_SECONDS: Final = 20.0
"""How long all requests of one page to the cluster may take together."""
MAX_PAGES: Final = 8
"""Pages that may query the cluster at the same time; others wait."""
MAX_TAILS: Final = 8
TAIL_SECONDS: Final = 3600.0
"""How long one live tail lasts, in seconds; then the browser connects again, if the page is still open."""

# --- logins

MAX_SESSIONS: Final = 50
"""Sessions of users who have logged in; each keeps connections to clusters."""
MAX_SESSIONS_OF_USER: Final = 5
MAX_SESSION_SECONDS: Final = 8 * 3600.0
IDLE_SECONDS: Final = 1800.0
"""How long after its last request a session ends."""
SWEEP_SECONDS: Final = 30.0
MAX_LOGINS: Final = 2
"""Logins that are tried at the same time; others wait."""
FAILED_LOGIN_SECONDS: Final = 1.0
"""How long a failed login is not answered, so that passwords are guessed slowly."""
MAX_NAME_CHARACTERS: Final = 256
MAX_PASSWORD_CHARACTERS: Final = 1024
PROVIDER_SECONDS: Final = 10.0
"""How long an identity provider may take for an answer."""
MAX_PROVIDER_BYTES: Final = 1024 * 1024
"""The longest answer of an identity provider."""
LOGIN_SECONDS: Final = 600
"""How long a user may take at the identity provider."""

# --- requests to the cluster

CALL_TIMEOUT_MS: Final = 8_000
SHARED_SECONDS: Final = 1.5
"""Seconds for which a loaded value is shared by several pages."""
MAX_SEARCHED_PARTITIONS: Final = 5_000
"""With more partitions, not all of them are searched for hanging transactions."""
MAX_TRANSACTIONS: Final = 100
"""The most open transactions that are described."""
MAX_EXPLAINED: Final = 100
"""Partitions."""
MAX_HOLDS: Final = 50
"""The most partitions that are shown of one transaction."""

SAMPLE_SECONDS: Final = 5.0
SAMPLES: Final = 720
"""Samples of a group's lag: an hour."""
MAX_SAMPLED_GROUPS: Final = 200

# --- asking Spark drivers for metrics

MAX_SAMPLED_QUERIES: Final = 100
METRICS_SECONDS: Final = 8.0
"""How long a driver may take to answer with its metrics."""
MAX_METRICS_BYTES: Final = 4 * 1024 * 1024
"""The longest answer of one driver."""

# --- Kafka Connect

CONNECT_SECONDS: Final = 8.0
"""How long a Kafka Connect may take for an answer."""
MAX_CONNECT_BYTES: Final = 2 * 1024 * 1024
MAX_CONNECTORS: Final = 500

# --- sizes of pages

MAX_ROWS: Final = 500
"""Rows of a table."""
PAGE_RECORDS: Final = 50
MAX_PAGE_PARTITIONS: Final = 32
"""Partitions of a topic that are read at once."""
PAGE_BYTES: Final = 2 * 1024 * 1024
"""Fetched for a page of records."""
SCAN_BYTES: Final = 16 * 1024 * 1024
SCAN_SECONDS: Final = 5.0
"""Seconds of a search by key; then the page asks whether to continue."""
MAX_BATCH_BYTES: Final = 16 * 1024 * 1024
"""Limit of one decompressed batch."""
MAX_BATCH_RECORDS: Final = 200_000
"""The most records of one batch; each becomes an object."""
TAIL_BYTES: Final = 256 * 1024
"""Fetched at once by a tail."""
TAIL_RECORDS: Final = 100
"""Records sent to the browser at once; further ones are only counted."""

# --- reading values

MAX_WORKERS: Final = 2
"""Processes that read values."""
TASK_SECONDS: Final = 5.0
"""How long one task of such a process may take."""
TASK_BYTES: Final = 1024 * 1024
"""Bytes of the values of one task; a single value may be larger."""
WORKER_BYTES: Final = 1024 * 1024 * 1024
"""Address space of such a process."""
MAX_TEXTS_CHARACTERS: Final = 8 * 1024 * 1024
"""Characters of all values that one task tells as JSON."""
MAX_SCHEMAS: Final = 20
"""Schemas of a registry that the values of one page may need."""
REGISTRY_SECONDS: Final = 8.0
"""How long a schema registry may take for one schema with its references."""

# --- downloads

DOWNLOAD_BYTES: Final = 32 * 1024 * 1024
"""Bytes of keys, values and headers of all records of a download."""

# --- sizes of what is shown

KEY_BYTES: Final = 200
VALUE_BYTES: Final = 600
"""Bytes of a value in a table."""
RECORD_BYTES: Final = 64 * 1024
"""Bytes of the value of a single record."""
MAX_HEADERS: Final = 100
NAME_CHARACTERS: Final = 120
"""Characters of a name in a table: group names may have 32767."""
MAX_SHOWN_CHARACTERS: Final = 100_000
"""Characters of any text."""

PICTURE_OFFSETS: Final = 400
PICTURE_BATCHES: Final = 400
PICTURE_BYTES: Final = 4 * 1024 * 1024
LANES: Final = 12
"""Producers with a line of their own in the picture of a log."""
