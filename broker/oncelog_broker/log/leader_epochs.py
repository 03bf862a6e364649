"""The first offset of each leader epoch of a log, kept in `leader-epoch-checkpoint`.

A follower uses these offsets to find where its log diverges from the leader's (KIP-101, KIP-279). The file is rewritten
at each change of leader epoch, before the first record of the new epoch is appended. The file is synced together with
the records, before the recovery point moves. If a power cut removes entries, recovery rebuilds them from the batches
above the recovery point, or from all batches if the file is damaged. Kafka's counterpart is LeaderEpochFileCache. Kafka
syncs the file at each change; this broker does not, because the sync would block the event loop twice for each
partition that gets a leader.

When the log start rises, the epochs below it leave the file before the new log start is checkpointed. If a crash makes
those records readable again, recovery adds their epochs from the batches before the first known epoch.
"""

from __future__ import annotations

from typing import Final

from oncelog_broker.log.checkpoints import format_checkpoint, parse_checkpoint
from oncelog_broker.runtime.disk import Disk
from oncelog_protocol.light_classes import NamedTuple

LEADER_EPOCH_FILE: Final = "leader-epoch-checkpoint"
UNDEFINED_EPOCH: Final = -1
UNDEFINED_OFFSET: Final = -1


class EpochEntry(NamedTuple):
    """A leader epoch, and the offset of the first record of that epoch."""

    epoch: int
    start_offset: int


class LeaderEpochs:
    """The leader epochs of one log. Invariant: epochs and start offsets both strictly increase. Methods that change the
    entries raise OSError.
    """

    __slots__ = ("_disk", "_entries", "_path", "is_unsynced", "latest_epoch")

    def __init__(self, disk: Disk, path: str, entries: list[EpochEntry]) -> None:
        self._disk = disk
        self._path = path
        self._entries = entries
        self.is_unsynced = False
        """Whether the file's content, or its name, is not synced yet. The caller that syncs both must set this
        attribute to False.
        """
        self.latest_epoch = entries[-1].epoch if entries else UNDEFINED_EPOCH

    @classmethod
    def load(cls, disk: Disk, path: str) -> LeaderEpochs:
        """Read the leader epochs from the file at `path`; there are no entries if the file does not exist. Raises
        CheckpointCorrupt, OSError.
        """
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
        """Record that `epoch` begins at `start_offset`. An old entry is dropped unless its epoch is below `epoch` and
        its start offset is below `start_offset`. If this method raises, the entries are unchanged.

        `persist=False` leaves the write to a later `flush`: recovery uses this, because it assigns many epochs.
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
        """Return the leader epoch of the record at `offset`; None if `offset` is before the first known epoch."""
        for entry in reversed(self._entries):
            if entry.start_offset <= offset:
                return entry.epoch
        return None

    def end_offset_for_epoch(self, epoch: int, log_end_offset: int) -> tuple[int, int]:
        """Return the result of OffsetForLeaderEpoch: (the largest known epoch that is not above `epoch`, the offset
        after the last record of that epoch).

        Returns (-1, -1) if `epoch` is UNDEFINED_EPOCH or newer than all known epochs. For an epoch before the first
        known epoch, returns `epoch` itself and the start offset of the first known epoch; an invalid epoch, such as -2,
        has the same result.
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
        """Remove the entries of epochs that begin at or after `end_offset`."""
        self._replace([entry for entry in self._entries if entry.start_offset < end_offset], persist=persist)

    def truncate_from_start(self, start_offset: int) -> None:
        """Remove the entries of epochs that ended before `start_offset`; the epoch that contains `start_offset` then
        begins at `start_offset`.
        """
        below = [entry for entry in self._entries if entry.start_offset <= start_offset]
        if below:
            kept = self._entries[len(below) - 1 :]
            self._replace([EpochEntry(kept[0].epoch, start_offset), *kept[1:]])

    def clear(self) -> None:
        self._replace([])

    def flush(self) -> None:
        """Write the leader epoch file and sync it."""
        self._disk.replace_file(self._path, format_checkpoint(self._entries))
        self.is_unsynced = False

    def paths_to_sync(self) -> list[str]:
        """Return the path of the leader epoch file, for the caller to sync; an empty list if nothing is unsynced."""
        return [self._path] if self.is_unsynced else []

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
    """Parse the fields of one line of the file: epoch and start offset. Raises ValueError."""
    epoch, start_offset = fields
    if int(epoch) < 0 or int(start_offset) < 0:
        raise ValueError("a negative epoch or offset")
    return int(epoch), int(start_offset)
