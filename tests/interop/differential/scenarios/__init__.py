"""The scenarios by area, and all of them in one list."""

from __future__ import annotations

from types import ModuleType
from typing import Final

from tests.interop.differential.scenario import Scenario, scenarios_of
from tests.interop.differential.scenarios import (
    acls,
    cluster,
    configs,
    consumer_groups,
    directories,
    fetch,
    group_membership,
    group_rebalance,
    inspection,
    log_offsets,
    logins,
    odd_batches,
    offsets,
    produce,
    quotas,
    reassignments,
    secured,
    share_offsets,
    share_records,
    share_states,
    shares,
    streams_groups,
    telemetry,
    topics,
    transaction_ends,
    transaction_offsets,
    transaction_timeouts,
    transactions,
    two_phase,
    walks,
    wire,
)

AREAS: Final[tuple[ModuleType, ...]] = (
    produce,
    quotas,
    odd_batches,
    fetch,
    log_offsets,
    transactions,
    transaction_ends,
    transaction_offsets,
    transaction_timeouts,
    inspection,
    acls,
    group_membership,
    group_rebalance,
    consumer_groups,
    offsets,
    share_offsets,
    share_records,
    share_states,
    shares,
    streams_groups,
    topics,
    reassignments,
    configs,
    cluster,
    logins,
    telemetry,
    wire,
)

SCENARIOS: Final[tuple[Scenario, ...]] = (
    *(one for area in AREAS for one in scenarios_of(area)),
    *walks.SCENARIOS,
)
"""All scenarios: first those written by hand, then the random ones."""
CONFIGURED: Final[tuple[Scenario, ...]] = (
    *(one for area in (two_phase, directories) for one in scenarios_of(area)),
    *walks.CONFIGURED,
)
"""Scenarios for brokers that allow two-phase commit and have two log directories."""
SECURED: Final[tuple[Scenario, ...]] = tuple(scenarios_of(secured))
"""Scenarios for brokers that require a login."""
