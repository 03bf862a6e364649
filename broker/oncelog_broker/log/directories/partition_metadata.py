"""`partition.metadata`: the topic id of the log in this directory (KIP-516), so that a topic deleted and made anew
under the same name does not continue the old one's log.

    version: 0
    topic_id: WsbkLmZVRwqkK4gQkDLWNg
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import Final

from oncelog_broker.runtime.disk import Disk
from oncelog_protocol.uuids import uuid_from_string, uuid_to_string

PARTITION_METADATA_FILE: Final = "partition.metadata"
VERSION: Final = 0


class PartitionMetadataCorrupt(ValueError):
    """The file is not what the format says."""


def read_topic_id(disk: Disk, directory: str) -> bytes | None:
    """The 16 bytes of the topic id; None if there is no file (a log from before KIP-516).

    Raises PartitionMetadataCorrupt, OSError.
    """
    path = os.path.join(directory, PARTITION_METADATA_FILE)
    if not disk.exists(path):
        return None
    try:
        lines = disk.read_file(path).decode("utf-8").split("\n")
        fields = dict(line.split(": ", 1) for line in lines if line.strip())
        if int(fields["version"]) != VERSION:
            raise ValueError(f"version {fields['version']:.20}, only {VERSION} is known")
        return uuid_from_string(fields["topic_id"].strip())
    except (ValueError, KeyError) as error:
        raise PartitionMetadataCorrupt(f"{path}: {error}") from error


def write_topic_ids(disk: Disk, topic_ids: Mapping[str, bytes]) -> None:
    """By directory. Raises OSError."""
    disk.replace_files(
        {
            os.path.join(directory, PARTITION_METADATA_FILE): (
                f"version: {VERSION}\ntopic_id: {uuid_to_string(topic_id)}".encode("ascii")
            )
            for directory, topic_id in topic_ids.items()
        }
    )
