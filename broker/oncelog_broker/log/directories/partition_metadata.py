"""`partition.metadata`: the topic id of the log in this directory (KIP-516). The id prevents a re-created topic from
continuing the log of a deleted topic with the same name.

The file has two lines, such as `version: 0` and `topic_id: WsbkLmZVRwqkK4gQkDLWNg`.
"""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from typing import Final

from oncelog_broker.runtime.disk import Disk
from oncelog_protocol.uuids import uuid_from_string, uuid_to_string

PARTITION_METADATA_FILE: Final = "partition.metadata"
VERSION: Final = 0


_BEGINNING: Final = f"version: {VERSION}\ntopic_id: ".encode("ascii")
_CUT_ID = re.compile(re.escape(_BEGINNING) + rb"[A-Za-z0-9_-]{0,21}")


class PartitionMetadataCorrupt(ValueError):
    """The file does not have the format of `partition.metadata`."""


class PartitionMetadataTorn(PartitionMetadataCorrupt):
    """The file has the form that an unsynced file may have after a power cut: only a beginning of the expected content,
    perhaps followed by zeros.
    """


def read_topic_id(disk: Disk, directory: str) -> bytes | None:
    """Return the 16 bytes of the topic id; None if the file does not exist, as in a log from before KIP-516.

    Raises PartitionMetadataTorn, PartitionMetadataCorrupt, OSError.
    """
    path = os.path.join(directory, PARTITION_METADATA_FILE)
    if not disk.exists(path):
        return None
    try:
        data = disk.read_file(path)
        lines = data.decode("utf-8").split("\n")
        fields = dict(line.split(": ", 1) for line in lines if line.strip())
        if int(fields["version"]) != VERSION:
            raise ValueError(f"version {fields['version']:.20}, only {VERSION} is supported")
        return uuid_from_string(fields["topic_id"].strip())
    except (ValueError, KeyError) as error:
        if _is_torn(data.rstrip(b"\0")):
            raise PartitionMetadataTorn(f"{path}: the file is incomplete") from error
        raise PartitionMetadataCorrupt(f"{path}: {error}") from error


def write_topic_ids(disk: Disk, topic_ids: Mapping[str, bytes]) -> None:
    """Write the topic ids, given by log directory. Raises OSError."""
    disk.replace_files(
        {
            os.path.join(directory, PARTITION_METADATA_FILE): partition_metadata(topic_id)
            for directory, topic_id in topic_ids.items()
        }
    )


def partition_metadata(topic_id: bytes) -> bytes:
    """Return the content of `partition.metadata` for this topic id."""
    return _BEGINNING + uuid_to_string(topic_id).encode("ascii")


def _is_torn(left: bytes) -> bool:
    return _BEGINNING.startswith(left) or _CUT_ID.fullmatch(left) is not None
