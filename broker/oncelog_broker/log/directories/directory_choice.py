"""Chooses the data directory of a new log: the one with the fewest logs; a directory that has just refused a log, or
has little free space, is avoided if there is another one.

Nothing here touches a disk, since a disk may hang: worker threads note the free space.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Final

from oncelog_broker.log.checkpoints import TopicPartition
from oncelog_broker.log.directories.data_directory import DataDirectory
from oncelog_broker.runtime.clock import Clock

REFUSAL_SECONDS: Final = 60.0
"""How long new logs go to other data directories after one has refused a log."""
LITTLE_ROOM_BYTES: Final = 64 * 1024 * 1024
"""A data directory with less free space gets a new log only if no other directory has more."""


class DirectoryChoice:
    """The directory choices of one `LogManager`. `homes`: its mapping from logs to data directories."""

    def __init__(
        self, directories: Sequence[DataDirectory], homes: Mapping[TopicPartition, DataDirectory], clock: Clock
    ) -> None:
        self._directories = directories
        self._homes = homes
        self._clock = clock
        self._refused_at: dict[DataDirectory, float] = {}
        """When a data directory last refused a log: monotonic, in seconds."""
        self._free_bytes: dict[DataDirectory, int] = {}
        self._planned: dict[TopicPartition, DataDirectory] = {}
        """The chosen directories of logs that are not created yet."""
        self._left_in: dict[TopicPartition, DataDirectory] = {}
        """Directories with the remains of a log that could not be created: the log must be created there, or it would
        exist twice."""

    def counts(self) -> Counter[DataDirectory]:
        """Count the logs of each data directory, planned ones included: the argument of `place`, once for many logs."""
        return Counter(self._homes.values()) + Counter(self._planned.values())

    def place(self, key: TopicPartition, counts: Counter[DataDirectory]) -> DataDirectory:
        """Return the data directory that has the log, or in which it will be created."""
        home = self._homes.get(key) or self._planned.get(key)
        if home is None:
            home = self._planned[key] = self._left_in.get(key) or self._best(counts)
            counts[home] += 1
        return home

    def take(self, key: TopicPartition, counts: Counter[DataDirectory]) -> DataDirectory:
        """Like `place`, for a log that the caller creates now."""
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

    def note_refusal(self, key: TopicPartition, directory: DataDirectory, *, is_left: bool) -> None:
        """Note that a log could not be created in a directory. `is_left`: the directory has remains of the log."""
        self._refused_at[directory] = self._clock.monotonic()
        if is_left:
            self._left_in[key] = directory

    def note_room(self, directory: DataDirectory, free_bytes: int) -> None:
        """Note the free space of a directory. May be called in any thread."""
        self._free_bytes[directory] = free_bytes
