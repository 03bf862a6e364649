"""Lists the configuration keys of Java's consumer and producer, as Kafka's own classes print them.

python -m tests.interop.kafka_client_keys writes tests/data/kafka_client_keys.json again; fetches jars with Maven

The table contains each key that any of these releases has. After a new release of Kafka, add it to RELEASES, run this
program, and handle each new key in `oncelog_pipeline/options/connector.py`.
`tests/unit/pipeline/options/test_connector.py` compares the table with that module.
"""

from __future__ import annotations

import json
import re
import subprocess
import sys
from pathlib import Path
from typing import Final

RELEASES: Final = ("3.9.1", "4.1.0", "4.3.1")
"""Releases of kafka-clients: those that Spark's connectors 4.x use, and later ones."""
CLASSES: Final = {
    "consumer": "org.apache.kafka.clients.consumer.ConsumerConfig",
    "producer": "org.apache.kafka.clients.producer.ProducerConfig",
}
TABLE: Final = Path(__file__).parents[1] / "data" / "kafka_client_keys.json"
LOGGING: Final = "org.slf4j:slf4j-api:1.7.36"
COPY: Final = "org.apache.maven.plugins:maven-dependency-plugin:3.8.1:copy"
KEY: Final = re.compile(r'<h4><a id="(?:consumer|producer)configs_([^"]+)"|<h4><a id="([^"]+)"')


def keys(release: str) -> dict[str, list[str]]:
    """Return the keys by the kind of client. Raises Unavailable if Java, Maven or a jar is not available."""
    sys.path[:0] = [str(Path(__file__).parent)]
    from maven import BUILD, fetch, need

    need("java", "mvn")
    jars = []
    for artifact in (f"org.apache.kafka:kafka-clients:{release}", LOGGING):
        _, name, version = artifact.split(":")
        jars.append(str(BUILD / "kafka-client-keys" / f"{name}-{version}.jar"))
        if not Path(jars[-1]).exists():
            target = f"-DoutputDirectory={BUILD / 'kafka-client-keys'}"
            fetch(["mvn", "-q", "-B", COPY, f"-Dartifact={artifact}", target], artifact)
    return {kind: printed(":".join(jars), name) for kind, name in CLASSES.items()}


def printed(class_path: str, name: str) -> list[str]:
    """Return the keys that the class prints as HTML, sorted."""
    shown = subprocess.run(["java", "-cp", class_path, name], capture_output=True, text=True, check=True).stdout
    return sorted({first or second for first, second in KEY.findall(shown)})


def main() -> None:
    found = {release: keys(release) for release in RELEASES}
    table = {kind: sorted({key for of_release in found.values() for key in of_release[kind]}) for kind in CLASSES}
    TABLE.write_text(json.dumps({"releases": RELEASES, **table}, indent=1) + "\n")


if __name__ == "__main__":
    main()
