"""Known differences in streams groups (KIP-1071)."""

from __future__ import annotations

from typing import Any, Final

from tests.interop.differential.register import Known

ERROR: Final = "error_code"
INTERVAL: Final = "heartbeat_interval_ms"
TOPOLOGIES: Final = "streams_groups.bad_topologies"


def is_one_behind(kafka: Any, ours: Any) -> bool:
    return isinstance(kafka, int) and ours == kafka + 1


KNOWN: Final = (
    Known("early-heartbeats", "*streams*.*", INTERVAL, 5000, 500, seen_in="streams_groups.two_members"),
    Known(
        "epoch-of-nobody",
        "streams_groups.*",
        "assignment_epoch",
        label="empty*",
        relation=is_one_behind,
        seen_in="streams_groups.one_member",
    ),
    Known("error-texts", "streams_groups.*", "*status_detail", seen_in="streams_groups.internal_topics"),
    Known("impossible-topologies", TOPOLOGIES, ERROR, -1, 130, label="subtopology twice"),
    Known("impossible-topologies", TOPOLOGIES, ERROR, 0, 130, label="one topic in two"),
    Known("impossible-topologies", TOPOLOGIES, ERROR, -1, 130, label="bad copartition"),
    Known("impossible-topologies", "streams_groups.topologies_change", ERROR, -1, 130, label="negative"),
    Known("endpoint-epochs", "streams_groups.endpoints", "endpoint_information_epoch", relation=is_one_behind),
    *(
        Known("tasks-again", "streams_groups.shutdown", tasks, kafka=None, label="first, after it")
        for tasks in ("active_tasks", "standby_tasks", "warmup_tasks")
    ),
)
