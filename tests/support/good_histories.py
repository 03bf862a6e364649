"""Generates histories without violations: it simulates a cluster that never fails, and clients that lose responses."""

from __future__ import annotations

import random
from collections import defaultdict

from oncelog_testing.history.events import NOT_YET, Commit, End, Outcome, Place, ReplicaLog, Send, StoredBatch
from oncelog_testing.history.recorder import History

PLACES = (Place("topic", 0), Place("topic", 1))
PRODUCERS = ("anna", "berta", "carla")
GROUP = "group"
INPUTS = Place("inputs")
COPIERS = "copiers"


class GoodCluster:
    """Simulates `steps` steps, chosen by `rng`, and records them in `history`."""

    def __init__(self, rng: random.Random, steps: int) -> None:
        self.history = History()
        self._rng = rng
        self._numbers: defaultdict[str, int] = defaultdict(int)
        self._logs: dict[Place, list[Send | None]] = {place: [] for place in PLACES}
        """Partition -> the partition's records by offset; None stands for a transaction marker."""
        self._epochs = dict.fromkeys(PLACES, 0)
        self._is_visible: dict[Send, bool] = {}
        self._committed: dict[Place, int] = {}
        self._committed_last: dict[Place, Commit] = {}
        """Partition -> of the commits that took effect, the one that was requested last."""
        self._undecided: list[tuple[list[Send], Commit | None, bool]] = []
        """Transactions whose outcome no client has learned and that the simulation ends later: (sends, offset commit or
        None, whether the transaction commits).
        """
        self._processed = 0
        self._inputs = [self.history.send("writer", INPUTS, f"input/{offset}".encode()) for offset in range(steps)]
        moves = [
            self._send, self._send, self._transaction, self._transaction, self._commit, self._commit, self._ask,
            self._ask, self._reset, self._decide, self._elect,
        ]  # fmt: skip
        for _ in range(steps):
            rng.choice(moves)()
        while self._undecided:
            self._decide()
        self._look()
        for _ in range(4):
            self._ask()

    def _place(self) -> Place:
        return self._rng.choice(PLACES)

    def _chance(self, of: float) -> bool:
        return self._rng.random() < of

    def _write(self, producer: str, transaction: object = None) -> Send:
        number = self._numbers[producer] = self._numbers[producer] + 1
        place = self._place()
        send = self.history.send(producer, place, f"{producer}/{number}".encode(), transaction)  # type: ignore[arg-type]
        self._is_visible[send] = False
        return send

    def _append(self, send: Send) -> None:
        self._logs[send.place].append(send)
        if self._chance(0.8) or send.transaction is not None:
            self.history.acknowledged(send, len(self._logs[send.place]) - 1)

    def _send(self) -> None:
        send = self._write(self._rng.choice(PRODUCERS))
        if self._chance(0.8):
            self._append(send)
            self._is_visible[send] = True
        elif self._chance(0.5):
            self.history.failed(send)

    def _transaction(self) -> None:
        producer = self._rng.choice(PRODUCERS)
        transaction = self.history.transaction(producer)
        sends = [self._write(producer, transaction) for _ in range(self._rng.randint(1, 4))]
        for send in sends:
            self._append(send)
        commits = self._chance(0.6)
        is_copying = self._chance(0.5) and self._processed + len(sends) <= len(self._inputs)
        if is_copying:
            for number, send in enumerate(sends):
                self.history.derived(send, COPIERS, INPUTS, self._processed + number)
        commit = self._new_commit(transaction) if self._chance(0.4) else None
        self._processed += is_copying * commits * len(sends)
        if self._chance(0.8):
            self._end(sends, commit, commits)
            self.history.ended(transaction, End.COMMITTED if commits else End.ABORTED)
            return
        if self._chance(0.5):
            self.history.ended(transaction, End.UNKNOWN)
        self._undecided.append((sends, commit, commits))

    def _decide(self) -> None:
        """End one of the undecided transactions, if there are any."""
        if self._undecided:
            self._end(*self._undecided.pop(self._rng.randrange(len(self._undecided))))

    def _end(self, sends: list[Send], commit: Commit | None, commits: bool) -> None:
        for place in {send.place for send in sends}:
            self._logs[place].append(None)
        if commits:
            for send in sends:
                self._is_visible[send] = True
            if commit is not None:
                self._done(commit)

    def _done(self, commit: Commit) -> None:
        """Let a committed offset take effect, unless a commit that was requested later has already taken effect."""
        last = self._committed_last.get(commit.place)
        if last is None or last.asked < commit.asked:
            self._committed_last[commit.place] = commit
            self._committed[commit.place] = commit.offset

    def _reset(self) -> None:
        """Reset the group's offset of one partition, as an operator does."""
        place = self._place()
        commit = self.history.reset(GROUP, place, self._rng.randint(-1, self._committed.get(place, 0) + 2))
        if self._chance(0.8):
            self._done(commit)
            if self._chance(0.8):
                self.history.commit_answered(commit)
        else:
            self.history.commit_answered(commit, Outcome.FAILED)

    def _new_commit(self, transaction: object = None) -> Commit:
        place = self._place()
        offset = self._committed.get(place, 0) + self._rng.randint(1, 3)
        # No two commits have the same offset: if one of two equal commits were aborted, the checker could not
        # distinguish them.
        while any(commit.place == place and commit.offset == offset for commit in self.history.commits):
            offset += 1
        commit = self.history.commit(GROUP, place, offset, transaction)  # type: ignore[arg-type]
        if transaction is not None:
            self.history.commit_answered(commit)
        return commit

    def _commit(self) -> None:
        commit = self._new_commit()
        if self._chance(0.8):
            self._done(commit)
            self.history.commit_answered(commit, Outcome.ACKNOWLEDGED if self._chance(0.8) else Outcome.UNKNOWN)
        else:
            self.history.commit_answered(commit, Outcome.FAILED)

    def _ask(self) -> None:
        place, asked = self._place(), self.history.now()
        self.history.offset_read(GROUP, place, self._committed.get(place, NOT_YET), asked=asked)

    def _elect(self) -> None:
        place = self._place()
        self._epochs[place] += 1
        self.history.led(place, self._epochs[place], self._rng.randint(1, 3))

    def _look(self) -> None:
        self.history.finally_holds(INPUTS, [(offset, send.value) for offset, send in enumerate(self._inputs)])
        self.history.finally_processed(COPIERS, INPUTS, self._processed)
        for place, log in self._logs.items():
            visible = [(offset, send.value) for offset, send in enumerate(log) if send and self._is_visible[send]]
            self.history.finally_holds(place, visible)
            for consumer in range(2):
                reading = self.history.reading(f"consumer {consumer}", place, is_committed=self._chance(0.7))
                everything = [(offset, send.value) for offset, send in enumerate(log) if send]
                start, end = sorted(self._rng.randint(0, len(log)) for _ in range(2))
                shown = visible if reading.is_committed else everything
                reading.records += [each for each in shown if start <= each[0] < end]
            self._copy(place, log)

    def _copy(self, place: Place, log: list[Send | None]) -> None:
        batches = [
            StoredBatch(offset, offset + 1, send.value if send else b"marker") for offset, send in enumerate(log)
        ]
        sure = self._rng.randint(0, len(log))
        for broker in (1, 2, 3):
            own = [batch._replace(content=batch.content + b"?%d" % broker) for batch in batches[sure:]]
            # at least one batch must remain, because it shows the replica's end offset
            start = self._rng.randint(0, max(0, sure - 1))
            self.history.replica(
                ReplicaLog(broker, place, self._rng.randint(0, sure), tuple(batches[:sure] + own)[start:])
            )
