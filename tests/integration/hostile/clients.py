"""Lists all hostile clients."""

from __future__ import annotations

from hostile import (
    decompression,
    groups,
    logins,
    long_lists,
    many_partitions,
    patterns,
    pipelined,
    repeated_names,
    slow_readers,
    slow_writers,
    tagged_fields,
    uploads,
)

CLIENTS = (
    *pipelined.CLIENTS,
    *slow_readers.CLIENTS,
    *slow_writers.CLIENTS,
    *tagged_fields.CLIENTS,
    *decompression.CLIENTS,
    *repeated_names.CLIENTS,
    *long_lists.CLIENTS,
    *uploads.CLIENTS,
    *patterns.CLIENTS,
    *groups.CLIENTS,
    *many_partitions.CLIENTS,
    *logins.CLIENTS,
)
