"""`meta.properties`: the owner of a data directory. This file prevents a broker from opening another broker's logs,
which would corrupt the cluster.

Version 1 is written by KRaft brokers and by this broker (node.id, cluster.id, directory.id); version 0 was written by
brokers with ZooKeeper (broker.id, cluster.id). The file is a Java properties file. Kafka's counterpart is
MetaProperties.
"""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from typing import Final

from oncelog_broker.runtime.disk import Disk
from oncelog_protocol.light_classes import dataclass

META_PROPERTIES_FILE: Final = "meta.properties"
WRITTEN_VERSION: Final = 1
NODE_ID_KEY: Final = {0: "broker.id", 1: "node.id"}
"""Version of the file -> the property with the broker's id."""
_PLAIN_VALUE = re.compile(r"[A-Za-z0-9._+/-]*")
_PLAIN_LINE = re.compile(r"(?P<key>[A-Za-z.]+)=(?P<value>[A-Za-z0-9._+/=-]*)\r?|[#!].*|\r?")
"""Matches a line of the properties file without escape sequences. Kafka and this broker write only such lines."""


class MetaPropertiesError(ValueError):
    """The file cannot be read, or the directory belongs to another broker or cluster. The message of this error
    contains the remedy.
    """


@dataclass(frozen=True, slots=True)
class MetaProperties:
    """The content of `meta.properties`. A field is None if the file does not contain the property: all properties are
    optional in version 0.
    """

    node_id: int | None
    cluster_id: str | None
    directory_id: str | None

    def check_owner(self, directory: str, *, node_id: int, cluster_id: str | None) -> None:
        """Raises MetaPropertiesError if the directory belongs to another broker or cluster."""
        if self.cluster_id is not None and cluster_id is not None and self.cluster_id != cluster_id:
            raise MetaPropertiesError(
                f"{directory} belongs to cluster {self.cluster_id}, this broker to {cluster_id}: "
                "configure another data directory, or connect the broker to the cluster to which the data belongs"
            )
        if self.node_id is not None and self.node_id != node_id:
            raise MetaPropertiesError(
                f"{directory} belongs to broker {self.node_id}, this is broker {node_id}: "
                f"set node.id={self.node_id}, or give this broker another data directory"
            )


def read_meta_properties(disk: Disk, directory: str) -> MetaProperties | None:
    """Read `meta.properties`; returns None if the file does not exist. Raises MetaPropertiesError, OSError."""
    path = os.path.join(directory, META_PROPERTIES_FILE)
    if not disk.exists(path):
        return None
    try:
        values = _parsed(disk.read_file(path).decode("utf-8"))
        version = int(values.get("version", "0"))
        if version not in NODE_ID_KEY:
            raise ValueError(f"version {version} is not supported")
        node_id = values.get(NODE_ID_KEY[version])
        return MetaProperties(
            node_id=int(node_id) if node_id is not None else None,
            cluster_id=values.get("cluster.id"),
            directory_id=values.get("directory.id"),
        )
    except ValueError as error:
        raise MetaPropertiesError(f"{path}: {error}") from error


def write_meta_properties(disk: Disk, directory: str, *, node_id: int, cluster_id: str, directory_id: str) -> None:
    """Write `meta.properties`. Raises OSError."""
    values = {
        "version": str(WRITTEN_VERSION),
        "node.id": str(node_id),
        "cluster.id": cluster_id,
        "directory.id": directory_id,
    }
    disk.replace_file(os.path.join(directory, META_PROPERTIES_FILE), _formatted(values).encode("ascii"))


def _parsed(text: str) -> dict[str, str]:
    """Parse the content of `meta.properties`. Raises ValueError. Only files with escape sequences or continued lines
    are parsed by the library for properties files, because the import of that library delays a startup by ten
    milliseconds.
    """
    lines = [_PLAIN_LINE.fullmatch(line) for line in text.split("\n")]
    if all(lines):
        return {line["key"]: line["value"] for line in lines if line is not None and line["key"] is not None}
    import javaproperties

    values: dict[str, str] = javaproperties.loads(text)
    return values


def _formatted(values: Mapping[str, str]) -> str:
    if all(_PLAIN_VALUE.fullmatch(value) for value in values.values()):
        return "".join(f"{key}={value}\n" for key, value in values.items())
    import javaproperties

    text: str = javaproperties.dumps(values, timestamp=False)
    return text
