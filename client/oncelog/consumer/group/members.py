"""Creates the group member of a consumer for either group protocol."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Final

from oncelog.config import ConsumerConfig
from oncelog.consumer.group.assignors import ASSIGNORS, assignors_for
from oncelog.consumer.group.broker_assigned import BrokerAssignedMember
from oncelog.consumer.group.coordinator import GroupCoordinator
from oncelog.consumer.positions import Positions
from oncelog.errors import ConfigError
from oncelog.metadata.metadata import Metadata

GroupMember = GroupCoordinator | BrokerAssignedMember
OF_THE_BROKER: Final = ("session_timeout_ms", "heartbeat_interval_ms", "partition_assignment_strategy")
"""Options that have no effect in the consumer protocol, because they are settings of the broker or of the
group.
"""


def check_group_options(config: ConsumerConfig, options: Mapping[str, Any]) -> None:
    """Check the options that the application has set (`options`). Raises ConfigError."""
    if config.group_protocol == "consumer":
        refused = [name for name in OF_THE_BROKER if name in options]
        if refused:
            raise ConfigError(
                f"{', '.join(refused)}: with group_protocol='consumer' the broker decides: group.consumer.* in its"
                " configuration, or consumer.* of the group"
            )
        return
    try:
        assignors_for(config.partition_assignment_strategy)
    except KeyError as error:
        raise ConfigError(
            f"partition_assignment_strategy has {error.args[0]!r}: must be among {', '.join(ASSIGNORS)}, or an Assignor"
        ) from None


def member_of_group(
    config: ConsumerConfig,
    positions: Positions,
    metadata: Metadata,
    *,
    attend: Callable[[], None],
    progress: Callable[[], object],
) -> GroupMember:
    """Return the member for the group protocol of `config`: GroupCoordinator or BrokerAssignedMember."""
    member = BrokerAssignedMember if config.group_protocol == "consumer" else GroupCoordinator
    return member(config, positions, metadata, attend=attend, progress=progress)
