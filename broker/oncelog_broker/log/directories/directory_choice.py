"""Chooses the data directory of a new log: the directory with the fewest logs. A directory that has just refused a log,
or has little free space, is chosen only if there is no other.

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
"""Seconds for which new logs are created in other data directories after one directory has refused a log."""
MAX_PREFERRED: Final = 10_000
"""Maximum number of logs that do not exist yet for which a client has asked for a directory."""
LITTLE_ROOM_BYTES: Final = 64 * 1024 * 1024
"""Bytes; a data directory with less free space gets a new log only if no other directory has more."""


class DirectoryChoice:
    """Chooses data directories for one `LogManager`. `homes` (argument) is the manager's mapping from logs to data
    directories.
    """

    def __init__(
        self, directories: Sequence[DataDirectory], homes: Mapping[TopicPartition, DataDirectory], clock: Clock
    ) -> None:
        self._directories = directories
        self._homes = homes
        self._clock = clock
        self._refused_at: dict[DataDirectory, float] = {}
        """Monotonic time, in seconds, when each data directory last refused a log."""
        self._free_bytes: dict[DataDirectory, int] = {}
        self._preferred: dict[TopicPartition, DataDirectory] = {}
        """The directories that clients have asked for, for logs that do not exist yet; at most MAX_PREFERRED."""
        self._planned: dict[TopicPartition, DataDirectory] = {}
        """The directories that were chosen for logs that have not been created yet."""
        self._left_in: dict[TopicPartition, DataDirectory] = {}
        """Directories that contain remains of a log that could not be created: that log must be created in the same
        directory, because otherwise it would exist twice.
        """

    def counts(self) -> Counter[DataDirectory]:
        """Count the logs of each data directory, including planned logs; the result is the `counts` argument of
        `place`, and may be used for many logs.
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
        """Create this log in `home`, if it does not exist yet. Beyond MAX_PREFERRED logs, the oldest are forgotten."""
        self._preferred.pop(key, None)
        self._preferred[key] = home
        while len(self._preferred) > MAX_PREFERRED:
            del self._preferred[next(iter(self._preferred))]

    def take(self, key: TopicPartition, counts: Counter[DataDirectory]) -> DataDirectory:
        """Return the data directory for a log that the caller creates now; the log then no longer counts as planned."""
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
        """Remember that a log could not be created in a directory. `is_left` says whether the directory contains
        remains of the log.
        """
        self._refused_at[directory] = self._clock.monotonic()
        if is_left:
            self._left_in[key] = directory

    def note_room(self, directory: DataDirectory, free_bytes: int) -> None:
        """Store the free bytes of a directory, which a worker thread has measured. This method may be called in any
        thread.
        """
        self._free_bytes[directory] = free_bytes
