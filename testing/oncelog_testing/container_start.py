"""Starts a broker in a container as the Kafka modules of testcontainers start Kafka: `python -m
oncelog_testing.container_start DIRECTORY`.

The modules of testcontainers set Kafka's settings as environment variables (KAFKA_LISTENERS), which an oncelog broker
also reads, and wait for a line that Kafka writes when it is ready. This program removes the settings of a KRaft
controller and of a ZooKeeper, which this broker does not have, and writes these lines.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Mapping
from typing import Final

WITHOUT_MEANING: Final = (
    "KAFKA_PROCESS_ROLES",
    "KAFKA_CONTROLLER_LISTENER_NAMES",
    "KAFKA_CONTROLLER_QUORUM_VOTERS",
    "KAFKA_ZOOKEEPER_CONNECT",
    "KAFKA_REST_BOOTSTRAP_SERVERS",
    "KAFKA_CONFLUENT_SUPPORT_METRICS_ENABLE",
)
LISTENERS: Final = ("KAFKA_LISTENERS", "KAFKA_ADVERTISED_LISTENERS", "KAFKA_LISTENER_SECURITY_PROTOCOL_MAP")
"""Settings that are lists whose elements begin with the name of a listener."""
READY: Final = " ready on "
"""Part of the line that `oncelog serve` writes when it serves."""
READY_LINES: Final = (
    "[KafkaServer id={id}] started",
    "Kafka Server started (oncelog)",
    "Transitioning from RECOVERY to RUNNING (oncelog)",
)
"""The lines for which testcontainers' modules wait: the Python module with ZooKeeper, the Python module with KRaft, and
the modules for Java and Go.
"""


def broker_environment(environment: Mapping[str, str]) -> dict[str, str]:
    """Return the variables of the broker, without a controller, the controller's listener and a ZooKeeper."""
    controllers = set(environment.get("KAFKA_CONTROLLER_LISTENER_NAMES", "").split(",")) - {""}
    kept = {name: value for name, value in environment.items() if name not in WITHOUT_MEANING}
    for name in LISTENERS:
        if name in kept:
            elements = [each for each in kept[name].split(",") if each.partition(":")[0] not in controllers]
            kept[name] = ",".join(elements)
    if "KAFKA_NODE_ID" in kept:
        kept.pop("KAFKA_BROKER_ID", None)
    return kept


def main() -> int:
    """Run the broker until it ends. Returns its exit code."""
    environment = broker_environment(os.environ)
    command = [sys.executable, "-P", "-m", "oncelog", "serve", "--data", sys.argv[1]]
    broker = subprocess.Popen(command, env=environment, stdout=subprocess.PIPE, text=True)
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda received, _: broker.send_signal(received))
    assert broker.stdout is not None
    for line in broker.stdout:
        sys.stdout.write(line)
        if READY in line:
            broker_id = environment.get("KAFKA_NODE_ID") or environment.get("KAFKA_BROKER_ID") or "1"
            for each in READY_LINES:
                sys.stdout.write(each.format(id=broker_id) + "\n")
        sys.stdout.flush()
    return broker.wait()


if __name__ == "__main__":
    sys.exit(main())
