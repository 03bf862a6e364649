"""Producer state behaves like a naive model that keeps every batch; a restart at any point gives the state of a full
replay.
"""

import dataclasses
import pathlib
import shutil
import tempfile

from hypothesis import given
from hypothesis import strategies as st
from tests.support.examples import examples
from tests.support.producers import ABORT, COMMIT, committed, mark, open_transactions, produce, producer_state
from tests.support.storage import append, open_log

from oncelog_broker.log.config import KAFKA, STRICT, LogConfig
from oncelog_broker.log.producers.entry import BatchStreak
from oncelog_broker.log.producers.state import DuplicateBatch, ProducerState
from oncelog_protocol.errors import ErrorCode, KafkaError
from oncelog_protocol.records.batch import TRANSACTIONAL_BIT
from oncelog_protocol.records.control import EndTransactionMarker

SPACE = 2**31


@dataclasses.dataclass
class Naive:
    """A model of one producer: all batches of its epoch, each a list of sequences."""

    is_strict: bool
    epoch: int = -1
    coordinator_epoch: int = -1
    batches: list = dataclasses.field(default_factory=list)
    """Each element is (sequence numbers, base offset)."""
    transaction: int | None = None
    newest_transaction: int = 0
    """First offset of the open transaction or, if none is open, of the last ended one."""
    is_any_next: bool = False
    """Whether the log has a marker but no batch of this producer epoch. The epoch's batches may have been removed, so
    any sequence
    number may follow.
    """

    def append(self, epoch, first, count, transactional, offset):
        """Return the base offset of the appended or duplicate batch, or an error code."""
        sequences = [(first + n) % SPACE for n in range(count)]
        if self.epoch >= 0:
            if epoch < self.epoch:
                return ErrorCode.INVALID_PRODUCER_EPOCH
            if epoch == self.epoch:
                for known, base in self.batches[-5:]:
                    if self.is_strict and transactional and (self.transaction is None or base < self.transaction):
                        if first in known and self._written(0).issuperset(sequences):
                            return ErrorCode.UNKNOWN_PRODUCER_ID
                    elif known == sequences:
                        return base
                last = self.batches[-1][0][-1] if self.batches else -1
                if first != (last + 1) % SPACE and not self.is_any_next:
                    if self.is_strict and self._written(self.newest_transaction).issuperset(sequences):
                        if transactional and self.transaction is None:
                            return ErrorCode.UNKNOWN_PRODUCER_ID
                        return ErrorCode.DUPLICATE_SEQUENCE_NUMBER
                    return ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
            elif first != 0:
                return ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
            if self.transaction is not None and not transactional:
                return ErrorCode.INVALID_TXN_STATE
            if self.transaction is not None and epoch != self.epoch:
                return ErrorCode.TRANSACTION_ABORTABLE
        if epoch != self.epoch:
            self.batches = []
        self.epoch, self.is_any_next = epoch, False
        self.batches.append((sequences, offset))
        if transactional and self.transaction is None:
            self.transaction = self.newest_transaction = offset
        return offset

    def _written(self, offset):
        """Return the sequence numbers of all batches from an offset on."""
        return {sequence for sequences, base in self.batches if base >= offset for sequence in sequences}

    def mark(self, epoch, coordinator_epoch):
        """Return the first offset of the ended transaction, None if none was open, or an error code."""
        if epoch < self.epoch:
            return ErrorCode.INVALID_PRODUCER_EPOCH
        if coordinator_epoch < self.coordinator_epoch:
            return ErrorCode.TRANSACTION_COORDINATOR_FENCED
        if epoch != self.epoch:
            self.batches, self.is_any_next = [], self.epoch < 0
        self.epoch, self.coordinator_epoch = epoch, coordinator_epoch
        ended, self.transaction = self.transaction, None
        return ended


STEP = st.one_of(
    st.tuples(
        st.just("next"), st.integers(0, 1), st.integers(1, 6), st.booleans(), st.integers(0, 9).map(lambda n: n == 0)
    ),
    st.tuples(st.just("near"), st.integers(0, 1), st.integers(-30, 8), st.integers(1, 6), st.booleans()),
    st.tuples(st.just("again"), st.integers(0, 1), st.integers(1, 9)),
    st.tuples(st.just("mark"), st.integers(0, 1), st.integers(0, 1), st.integers(-1, 2)),
    st.tuples(st.just("restore")),
)


class Run:
    """Contains the model, the real producer state, and the values from which the test chooses the next step."""

    def __init__(self, is_strict, start):
        self.config = LogConfig(idempotence_duplicate_classification=STRICT if is_strict else KAFKA)
        self.state = ProducerState(self.config)
        self.follower = ProducerState(self.config)
        self.naive = [Naive(is_strict), Naive(is_strict)]
        self.next = [start, start]
        self.sent = [[], []]
        self.end = 0

    def append(self, pid, epoch, first, count, transactional):
        first %= SPACE
        attributes = TRANSACTIONAL_BIT if transactional else 0
        header = (self.end, 100, 0, 2, 0, attributes, count - 1, 0, 0, pid, epoch, first, count)
        try:
            found = self.state.prepare_append(header, self.end, 0)
        except KafkaError as error:
            found = error.code
        answer = found.base_offset if isinstance(found, DuplicateBatch) else found
        if isinstance(found, bytes | BatchStreak):
            self.state.adopt(found, header, self.end, 0)
            answer = self.end
        assert answer == self.naive[pid].append(epoch, first, count, transactional, self.end)
        if isinstance(found, bytes | BatchStreak):
            self.follower.follow(header)
            self.end += count
            self.sent[pid].append((epoch, first, count, transactional))
            self.next[pid] = first + count

    def mark(self, pid, epoch, coordinator_epoch):
        marker = EndTransactionMarker(ABORT, coordinator_epoch)
        try:
            entry = self.state.prepare_marker(pid, epoch, marker, 0)
        except KafkaError as error:
            assert error.code == self.naive[pid].mark(epoch, coordinator_epoch)
            return
        completed = self.state.complete(pid, entry, marker, self.end)
        assert self.follower.follow_marker(pid, epoch, marker, 0, self.end) == completed
        first = self.naive[pid].mark(epoch, coordinator_epoch)
        assert (None if completed is None else completed.first_offset) == first
        self.end += 1
        if not self.naive[pid].batches:
            self.next[pid] = 0


@examples(80, of=300)
@given(
    is_strict=st.booleans(),
    start=st.one_of(st.just(0), st.integers(SPACE - 20, SPACE - 1)),
    steps=st.lists(STEP, max_size=40),
)
def test_s7_to_s13_hold_as_in_a_model_that_keeps_every_batch(is_strict, start, steps):
    run = Run(is_strict, start)
    for step in steps:
        naive = run.naive[step[1]] if len(step) > 1 else None
        match step:
            case "next", pid, count, transactional, bump:
                epoch = max(naive.epoch, 0) + bump
                run.append(pid, epoch, 0 if bump else run.next[pid], count, transactional)
            case "near", pid, distance, count, transactional:
                run.append(pid, max(naive.epoch, 0), run.next[pid] + distance, count, transactional)
            case "again", pid, back:
                if len(run.sent[pid]) >= back:
                    run.append(pid, *run.sent[pid][-back])
            case "mark", pid, bump, coordinator:
                run.mark(pid, max(naive.epoch, 0) + bump, max(naive.coordinator_epoch + coordinator, 0))
            case ("restore",):
                image = run.state.image()
                run.state = ProducerState(run.config)
                run.state.restore(image)
        assert sorted(run.state.image()) == sorted(run.follower.image()), "who replays the log knows the same"
        opened = sorted((n.transaction, pid) for pid, n in enumerate(run.naive) if n.transaction is not None)
        assert open_transactions(run.state) == opened
        run.state.on_high_watermark(run.end)
        assert run.state.first_unstable_offset == (opened[0][0] if opened else 2**63 - 1)


LOG_STEP = st.one_of(
    st.tuples(st.just("produce"), st.integers(0, 3), st.integers(1, 3)),
    st.tuples(st.just("transaction"), st.integers(4, 6), st.integers(1, 3)),
    st.tuples(st.just("plain")),
    st.tuples(st.just("end"), st.integers(4, 6), st.sampled_from([COMMIT, ABORT]), st.integers(0, 1)),
    st.tuples(st.just("roll")),
    st.tuples(st.just("flush")),
    st.tuples(st.just("crash")),
    st.tuples(st.just("restart")),
    st.tuples(st.just("damage"), st.integers(0, 5), st.sampled_from(["snapshot", "window", "txnindex"])),
)


@examples(60)
@given(steps=st.lists(LOG_STEP, min_size=5, max_size=40))
def test_s55_a_restart_at_any_point_is_a_full_replay(steps):
    directory = tempfile.mkdtemp(prefix="oncelog-producers-")
    log, values, pending = open_log(directory), [], {}
    sequences, epochs, number, window_lost = {}, {}, 0, False
    try:
        for step in steps:
            match step:
                case "produce" | "transaction" as kind, pid, count:
                    sequence = sequences.get(pid, 0)
                    transactional = kind == "transaction"
                    options = {"transactional": transactional, "epoch": epochs.get(pid, 0)}
                    produce(log, pid, sequence, count, **options)
                    sequences[pid] = sequence + count
                    new = [b"%d/%d" % (pid, sequence + n) for n in range(count)]
                    if transactional:
                        pending.setdefault(pid, []).extend(new)
                    else:
                        values += new
                case ("plain",):
                    number += 1
                    append(log, b"plain %d" % number)
                    values.append(b"plain %d" % number)
                case "end", pid, outcome, bump:
                    epochs[pid] = epochs.get(pid, 0) + bump
                    mark(log, pid, outcome, epoch=epochs[pid])
                    if bump:
                        sequences[pid] = 0
                    ended = pending.pop(pid, [])
                    values += ended if outcome is COMMIT else []
                case ("roll",):
                    log.trimmer.roll()
                case ("flush",):
                    log.flusher.flush()
                case "damage", which, suffix:
                    damage(log, directory, which, suffix)
                    window_lost |= suffix == "window"
                case _:
                    state, end = producer_state(log), log.log_end_offset
                    if step == ("restart",):
                        log.close()
                    clean = step == ("restart",)
                    log = open_log(directory, clean_shutdown=clean, recovery_point=end if clean else 0)
                    assert normal(producer_state(log), window_lost) == normal(state, window_lost)
        log.producers.state.on_high_watermark(log.log_end_offset)
        for pid in list(pending):
            mark(log, pid, ABORT, epoch=epochs.get(pid, 0))
        log.producers.state.on_high_watermark(log.log_end_offset)
        assert sorted(committed(log)) == sorted(values)
    finally:
        log.close()
        shutil.rmtree(directory)


def normal(state, window_lost):
    """Return the producer state in a comparable form, without the facts that only the damaged window file contained."""
    return ([entry[:46] for entry in state[0]], *state[1:]) if window_lost else state


def damage(log, directory, which, suffix):
    """Cut a byte off a file that the running log does not read again."""
    paths = sorted(pathlib.Path(directory).glob(f"*.{suffix}"))
    if paths:
        path = paths[which % len(paths)]
        path.write_bytes(path.read_bytes()[:-1])
