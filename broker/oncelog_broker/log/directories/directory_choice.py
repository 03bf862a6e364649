"""In which data directory a new log is made: not in one that has just refused a log or has little room left, as long as
there is another one; of those that are left, in the one with the fewest logs.

Nothing here touches a disk, since a disk may hang: how much room there is, worker threads note.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Final

from oncelog_broker.log.checkpoints import TopicPartition
from oncelog_broker.log.directories.data_directory import DataDirectory
from oncelog_broker.runtime.clock import Clock

REFUSAL_SECONDS: Final = 60.0
"""For so long after a data directory has refused a log, new logs go to others."""
LITTLE_ROOM_BYTES: Final = 64 * 1024 * 1024
"""With less free than that, a data directory gets a new log only if no other one has more."""


class DirectoryChoice:
    """Of one `LogManager`, whose mapping `homes` is."""

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
        """For logs that are to be made: chosen, and not used yet."""
        self._left_in: dict[TopicPartition, DataDirectory] = {}
        """Where a part of a log was left that could not be made: in another directory it would be there twice."""

    def counts(self) -> Counter[DataDirectory]:
        """How many logs each data directory has, or is to have: what `place` wants to know, for many logs at a time."""
        return Counter(self._homes.values()) + Counter(self._planned.values())

    def place(self, key: TopicPartition, counts: Counter[DataDirectory]) -> DataDirectory:
        """Where the log is, or is to be made."""
        home = self._homes.get(key) or self._planned.get(key)
        if home is None:
            home = self._planned[key] = self._left_in.get(key) or self._best(counts)
            counts[home] += 1
        return home

    def take(self, key: TopicPartition, counts: Counter[DataDirectory]) -> DataDirectory:
        """As `place`, for a log that is about to be made there."""
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
        """A log could not be made here. `is_left`: a part of it is there."""
        self._refused_at[directory] = self._clock.monotonic()
        if is_left:
            self._left_in[key] = directory

    def note_room(self, directory: DataDirectory, free_bytes: int) -> None:
        """May be called in any thread."""
        self._free_bytes[directory] = free_bytes
