"""The logs of one broker that have work for its periodic tasks. With this register, an idle broker with very many logs
visits only the logs that have changed.

A log adds its partition when an event makes periodic work possible (`LogState`). An entry is only a hint: the task that
visits the log checks the condition, and removes the entry if no work is left. Invariant: the partition of each log
whose condition holds is a key of the dictionary (the order of the keys, unlike that of a set, is the same in each run
of a simulation):

- `failed`: the log went offline because of an error.
- `to_flush`: a segment was closed, a producer snapshot is not written yet, the log has unflushed records while the
  settings limit their number or the time until a flush, or the log's new directory could not be synced.
- `to_free`: the log has files of deleted segments, which must be freed later.
"""

from __future__ import annotations

from oncelog_broker.log.checkpoints import TopicPartition


class PeriodicWork:
    """The logs with periodic work, by kind of work. Any thread may add an entry; only the thread of the logs removes
    entries.
    """

    __slots__ = ("failed", "to_flush", "to_free")

    def __init__(self) -> None:
        self.failed: dict[TopicPartition, None] = {}
        self.to_flush: dict[TopicPartition, None] = {}
        self.to_free: dict[TopicPartition, None] = {}
