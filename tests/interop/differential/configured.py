"""The settings of two compared brokers that have what the defaults do not have: two-phase commit (KIP-939), and two log
directories.
"""

from __future__ import annotations

from typing import Final

SETTINGS: Final = {"transaction.two.phase.commit.enable": "true"}
KAFKA_SETTINGS: Final = {**SETTINGS, "unstable.api.versions.enable": "true"}
"""Apache Kafka serves InitProducerId v6 only as an unstable version."""
