"""Fetches the jars of Spark's own Kafka connector by their Maven coordinates, without those that PySpark
already has.
"""

from __future__ import annotations

from pathlib import Path
from typing import Final

from maven import BUILD, Unavailable, fetch, need

RELEASES: Final = ("4.3.0", "4.2.1", "4.2.0", "4.1.4", "4.0.0")
"""Releases of the connector, the newest first, since not every registry has each of them. PySpark 4.3 can use all of
them, except the stream source of older releases.
"""
KAFKA_CLIENTS: Final = "3.9.1"
POOL: Final = "2.12.0"
COPY: Final = "org.apache.maven.plugins:maven-dependency-plugin:3.8.1:copy"


def connector() -> list[Path]:
    """Return the jars of a release that was fetched before, or else of the newest available release. Raises
    Unavailable.
    """
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
    """Return the jars by their Maven coordinates."""
    directory = BUILD / f"spark-connector-{release}"
    coordinates = (
        f"org.apache.spark:spark-sql-kafka-0-10_2.13:{release}",
        f"org.apache.spark:spark-token-provider-kafka-0-10_2.13:{release}",
        f"org.apache.kafka:kafka-clients:{KAFKA_CLIENTS}",
        f"org.apache.commons:commons-pool2:{POOL}",
    )
    return {each: directory / ("-".join(each.split(":")[1:]) + ".jar") for each in coordinates}
