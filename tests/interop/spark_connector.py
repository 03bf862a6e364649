"""Spark's own Kafka connector: its jars, by their Maven coordinates, without what PySpark has."""

from __future__ import annotations

from pathlib import Path
from typing import Final

from maven import BUILD, Unavailable, fetch, need

RELEASES: Final = ("4.3.0", "4.2.1", "4.2.0", "4.1.4", "4.0.0")
"""The newest first: not each of them is in every registry. PySpark 4.3 can use them all, but for the stream source of
older ones."""
KAFKA_CLIENTS: Final = "3.9.1"
POOL: Final = "2.12.0"
COPY: Final = "org.apache.maven.plugins:maven-dependency-plugin:3.8.1:copy"


def connector() -> list[Path]:
    """The jars of a release that was fetched before, else of the newest that there is. Raises Unavailable."""
    for release in RELEASES:
        if all(jar.exists() for jar in _jars(release).values()):
            return list(_jars(release).values())
    need("java", "mvn")
    told = []
    for release in RELEASES:
        try:
            return _fetched(release)
        except Unavailable as error:
            told.append(f"{release}: {error}"[:200])
    raise Unavailable(f"Spark's connector cannot be fetched: {'; '.join(told)}")


def _fetched(release: str) -> list[Path]:
    """Raises Unavailable."""
    for artifact, jar in _jars(release).items():
        if not jar.exists():
            fetch(["mvn", "-q", "-B", COPY, f"-Dartifact={artifact}", f"-DoutputDirectory={jar.parent}"], artifact)
    return list(_jars(release).values())


def _jars(release: str) -> dict[str, Path]:
    """By their coordinates."""
    directory = BUILD / f"spark-connector-{release}"
    coordinates = (
        f"org.apache.spark:spark-sql-kafka-0-10_2.13:{release}",
        f"org.apache.spark:spark-token-provider-kafka-0-10_2.13:{release}",
        f"org.apache.kafka:kafka-clients:{KAFKA_CLIENTS}",
        f"org.apache.commons:commons-pool2:{POOL}",
    )
    return {each: directory / ("-".join(each.split(":")[1:]) + ".jar") for each in coordinates}
