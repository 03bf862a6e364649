"""Leader epoch -> first offset of that epoch, kept in `leader-epoch-checkpoint`.

Followers find with it where their log parts from the leader's (KIP-101, KIP-279). The file is rewritten at each
change, which is at each change of leader, before the first record of the new epoch is appended; it is synced with the
records, before the recovery point moves. What a power cut takes of it, recovery learns from the batches behind that
point, or, where it is damaged, from all. Source: Kafka's LeaderEpochFileCache, which syncs at once: here, that would be
on the event loop, and twice for each partition that gets a leader.
"""

from __future__ import annotations

from typing import Final, NamedTuple

from oncelog_broker.log.checkpoints import format_checkpoint, parse_checkpoint
from oncelog_broker.runtime.disk import Disk, File

LEADER_EPOCH_FILE: Final = "leader-epoch-checkpoint"
UNDEFINED_EPOCH: Final = -1
UNDEFINED_OFFSET: Final = -1


class EpochEntry(NamedTuple):
    """`start_offset` is the offset of the first record of `epoch`."""

    epoch: int
    start_offset: int


class LeaderEpochs:
    """Invariant: epochs and start offsets both strictly increase. Methods that change it raise OSError."""

    __slots__ = ("_disk", "_entries", "_path", "is_unsynced", "latest_epoch")

    def __init__(self, disk: Disk, path: str, entries: list[EpochEntry]) -> None:
        self._disk = disk
        self._path = path
        self._entries = entries
        self.is_unsynced = False
        """The file, or its name, is not on the disk yet. Whoever syncs both resets it."""
        self.latest_epoch = entries[-1].epoch if entries else UNDEFINED_EPOCH

    @classmethod
    def load(cls, disk: Disk, path: str) -> LeaderEpochs:
        """From the file; without entries if there is none. Raises CheckpointCorrupt, OSError."""
        if not disk.exists(path):
            return cls(disk, path, [])
        epochs = cls(disk, path, [])
        for epoch, start_offset in parse_checkpoint(path, disk.read_file(path), parse_entry):
            epochs._insert(EpochEntry(epoch, start_offset))
        return epochs

    @property
    def entries(self) -> tuple[EpochEntry, ...]:
        return tuple(self._entries)

    def assign(self, epoch: int, start_offset: int, *, persist: bool = True) -> None:
        """`epoch` begins at `start_offset`. Entries that contradict it (not below it in both fields) are dropped.
        Nothing has changed where this raises.

        `persist=False` leaves the writing to a later `flush`: for recovery, which assigns many.
        """
        before = list(self._entries)
        if self._insert(EpochEntry(epoch, start_offset)) and persist:
            try:
                self._write()
            except OSError:
                self._entries = before
                self.latest_epoch = before[-1].epoch if before else UNDEFINED_EPOCH
                raise

    def epoch_for_offset(self, offset: int) -> int | None:
        """The epoch that the record at `offset` was written in, None if it is older than all that is known."""
        for entry in reversed(self._entries):
            if entry.start_offset <= offset:
                return entry.epoch
        return None

    def end_offset_for_epoch(self, epoch: int, log_end_offset: int) -> tuple[int, int]:
        """(the largest epoch not above `epoch`, the offset after its last record): OffsetForLeaderEpoch's answer.

        (-1, -1) if `epoch` is UNDEFINED_EPOCH or newer than all that is known; for an epoch older than all (so, too,
        for one that no leader can have, as -2), `epoch` itself and the start of the first.
        """
        if epoch == UNDEFINED_EPOCH:
            return UNDEFINED_EPOCH, UNDEFINED_OFFSET
        if epoch == self.latest_epoch:
            return epoch, log_end_offset
        floor = epoch
        for entry in self._entries:
            if entry.epoch > epoch:
                return floor, entry.start_offset
            floor = entry.epoch
        return UNDEFINED_EPOCH, UNDEFINED_OFFSET

    def truncate_from_end(self, end_offset: int, *, persist: bool = True) -> None:
        """Forget epochs that begin at or after `end_offset`."""
        self._replace([entry for entry in self._entries if entry.start_offset < end_offset], persist=persist)

    def truncate_from_start(self, start_offset: int) -> None:
        """Forget epochs that ended before `start_offset`; the one it lies in begins there now."""
        below = [entry for entry in self._entries if entry.start_offset <= start_offset]
        if below:
            kept = self._entries[len(below) - 1 :]
            self._replace([EpochEntry(kept[0].epoch, start_offset), *kept[1:]])

    def clear(self) -> None:
        self._replace([])

    def flush(self) -> None:
        """Write the file and sync it."""
        self._disk.replace_file(self._path, format_checkpoint(self._entries))
        self.is_unsynced = False

    def files_to_sync(self) -> list[File]:
        """Opened for the caller to sync and close."""
        return [self._disk.open_briefly(self._path)] if self.is_unsynced else []

    def _write(self) -> None:
        self._disk.replace_file(self._path, format_checkpoint(self._entries), is_durable=False)
        self.is_unsynced = True

    def _insert(self, new: EpochEntry) -> bool:
        entries = self._entries
        if entries and entries[-1].epoch == new.epoch and entries[-1].start_offset <= new.start_offset:
            return False
        while entries and (entries[-1].epoch >= new.epoch or entries[-1].start_offset >= new.start_offset):
            entries.pop()
        entries.append(new)
        self.latest_epoch = new.epoch
        return True

    def _replace(self, entries: list[EpochEntry], *, persist: bool = True) -> None:
        if entries != self._entries:
            self._entries = entries
            self.latest_epoch = entries[-1].epoch if entries else UNDEFINED_EPOCH
            if persist:
                self._write()


def parse_entry(fields: list[str]) -> tuple[int, int]:
    """A line of the file, split. Raises ValueError."""
    epoch, start_offset = fields
    if int(epoch) < 0 or int(start_offset) < 0:
        raise ValueError("a negative epoch or offset")
    return int(epoch), int(start_offset)
