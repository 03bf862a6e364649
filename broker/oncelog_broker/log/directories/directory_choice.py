"""Chooses the data directory of a new log: the directory with the fewest logs. If a directory has little free space, or
a log could not be created in it recently, it is chosen only when no better directory exists.

No function here accesses a disk, because a disk may hang: worker threads report the free space.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Final

from oncelog_broker.log.checkpoints import TopicPartition
from oncelog_broker.log.directories.data_directory import DataDirectory
from oncelog_broker.runtime.clock import Clock

REFUSAL_SECONDS: Final = 60.0
"""After a log could not be created in a directory, the broker prefers other directories for this many seconds."""
MAX_PREFERRED: Final = 10_000
"""Clients may choose a directory for a log that does not exist yet; this is the maximum number of such choices that are
kept.
"""
LITTLE_ROOM_BYTES: Final = 64 * 1024 * 1024
"""The number of free bytes below which a data directory counts as full: a new log is created in a full directory only
if no better directory exists.
"""


class DirectoryChoice:
    """Chooses data directories for one `LogManager`. The argument `homes` maps each log of the manager to its data
    directory.
    """

    def __init__(
        self, directories: Sequence[DataDirectory], homes: Mapping[TopicPartition, DataDirectory], clock: Clock
    ) -> None:
        self._directories = directories
        self._homes = homes
        self._clock = clock
        self._refused_at: dict[DataDirectory, float] = {}
        """Data directory -> monotonic time, in seconds, when a log last could not be created in that directory."""
        self._free_bytes: dict[DataDirectory, int] = {}
        self._preferred: dict[TopicPartition, DataDirectory] = {}
        """Log -> the directory that a client has requested before the log exists; at most MAX_PREFERRED entries."""
        self._planned: dict[TopicPartition, DataDirectory] = {}
        """Log -> the directory that was chosen for the log before its creation."""
        self._left_in: dict[TopicPartition, DataDirectory] = {}
        """Log -> the directory in which a failed creation of the log has left files. The next attempt must use the same
        directory, because otherwise the log would exist in two directories.
        """

    def counts(self) -> Counter[DataDirectory]:
        """Count the logs of each data directory, including planned logs. Pass the result to `place` as `counts`; one
        result may be used for many calls of `place`.
        """
        return Counter(self._homes.values()) + Counter(self._planned.values())

    def place(self, key: TopicPartition, counts: Counter[DataDirectory]) -> DataDirectory:
        """Return the data directory that contains the log, or in which the log will be created."""
        home = self._homes.get(key) or self._planned.get(key)
        if home is None:
            home = self._planned[key] = self._left_in.get(key) or self._preferred.get(key) or self._best(counts)
            counts[home] += 1
        return home

    def prefer(self, key: TopicPartition, home: DataDirectory) -> None:
        """Remember that this log, if it does not exist yet, must be created in `home`. With more than MAX_PREFERRED
        remembered logs, the oldest entries are dropped.
        """
        self._preferred.pop(key, None)
        self._preferred[key] = home
        while len(self._preferred) > MAX_PREFERRED:
            del self._preferred[next(iter(self._preferred))]

    def take(self, key: TopicPartition, counts: Counter[DataDirectory]) -> DataDirectory:
        """Return the data directory for a log that the caller creates now, and remove the log from the planned logs."""
        home = self.place(key, counts)
        self._planned.pop(key, None)
        return home

    def _best(self, counts: Counter[DataDirectory]) -> DataDirectory:
        now = self._clock.monotonic()

        def reluctance(directory: DataDirectory) -> tuple[bool, bool, int]:
            has_refused = now - self._refused_at.get(directory, -REFUSAL_SECONDS) < REFUSAL_SECONDS
            is_full = self._free_bytes.get(directory, LITTLE_ROOM_BYTES) < LITTLE_ROOM_BYTES
            return has_refused, is_full, counts[directory]

        return min(self._directories, key=reluctance)

    def note_made(self, key: TopicPartition) -> None:
        self._left_in.pop(key, None)
        self._preferred.pop(key, None)

    def note_refusal(self, key: TopicPartition, directory: DataDirectory, *, is_left: bool) -> None:
        """Remember that a log could not be created in a directory. `is_left` says whether the failed creation has left
        files in the directory.
        """
        self._refused_at[directory] = self._clock.monotonic()
        if is_left:
            self._left_in[key] = directory

    def note_room(self, directory: DataDirectory, free_bytes: int) -> None:
        """Store the free bytes of a directory, which a worker thread has measured. This method may be called in any
        thread.
        """
        self._free_bytes[directory] = free_bytes
