"""Compacts random logs, and compares each with a model that says which records must remain or be removed."""

import tempfile
from pathlib import Path

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from tests.support.compacted import (
    COMPACTED,
    Entry,
    all_batches,
    clean,
    compacted,
    end_transaction,
    entries,
    last_values,
    put,
)
from tests.support.examples import examples
from tests.support.storage import NOW, open_log

from oncelog_broker.log.partition_log import PartitionLog
from oncelog_protocol.records.compression import Compression
from oncelog_protocol.records.control import ControlType

MARKER_KEY = bytes(4)
"""The key of an ABORT marker. Data records may have the same key (KAFKA-14055)."""

keys = st.sampled_from([b"", b"a", b"b", b"fifteen bytes..", b"sixteen bytes...", b"long" * 20, MARKER_KEY, None])
values = st.sampled_from([None, b"", b"1", b"v" * 90])
pairs = st.lists(st.tuples(keys, values), min_size=1, max_size=5)
codecs = st.sampled_from(Compression)
plain = st.tuples(st.just("put"), pairs, codecs, st.sampled_from([-1, 1, 2]))
transactions = st.tuples(
    st.just("transaction"), st.lists(pairs, max_size=3), st.sampled_from(ControlType), st.sampled_from([7, 8])
)
rolls = st.tuples(st.just("roll"))
histories = st.lists(plain | plain | transactions | rolls, min_size=1, max_size=14)


class History:
    """A log built from randomly drawn actions, and the facts that the log itself does not contain."""

    def __init__(self, directory: str, actions: list) -> None:
        self.log: PartitionLog = open_log(directory, COMPACTED)
        self.directory = directory
        self.aborted_offsets: set[int] = set()
        self._sequences: dict[int, int] = {}
        for action in actions:
            getattr(self, action[0])(*action[1:])
        self.log.trimmer.roll()

    def put(self, drawn: list, codec: Compression, producer_id: int) -> int:
        return self._append(drawn, codec, producer_id, transactional=False)

    def transaction(self, batches_of_it: list, outcome: ControlType, producer_id: int) -> None:
        first = [self._append(drawn, Compression.NONE, producer_id, transactional=True) for drawn in batches_of_it]
        marker = end_transaction(self.log, producer_id, outcome)
        if outcome is ControlType.ABORT and first:
            self.aborted_offsets.update(range(first[0], marker))

    def roll(self) -> None:
        self.log.trimmer.roll()

    def _append(self, drawn: list, codec: Compression, producer_id: int, *, transactional: bool) -> int:
        stamp = (-1, -1, -1)
        if producer_id >= 0:
            sequence = self._sequences.get(producer_id, 0)
            self._sequences[producer_id] = sequence + len(drawn)
            stamp = (producer_id, 0, sequence)
        return put(self.log, *drawn, compression=codec, producer=stamp, transactional=transactional)

    def clean(self, **options) -> int | None:
        return clean(self.log, **options)

    def files_from(self, offset: int) -> dict[str, bytes]:
        return {
            path.name: path.read_bytes()
            for path in Path(self.directory).glob("*.log")
            if int(path.name.removesuffix(".log")) >= offset
        }


def last_sequences(log: PartitionLog) -> dict[int, tuple[int, int]]:
    return {
        batch.producer_id: (batch.last_offset, batch.base_sequence)
        for batch in all_batches(log)
        if batch.has_producer_id and not batch.is_control
    }


def assert_every_offset_reads_on(log: PartitionLog, found: list[Entry]) -> None:
    for offset in range(log.log_start_offset, log.log_end_offset + 1, max(1, log.log_end_offset // 15)):
        assert entries(log, offset) == [entry for entry in found if entry.offset >= offset]


@settings(examples(30, of=60), suppress_health_check=[HealthCheck.too_slow])
@given(histories, histories, st.data())
def test_exactly_the_last_record_of_each_key_stays(below, above, data):
    with tempfile.TemporaryDirectory() as directory:
        history = History(directory, below)
        log, end = history.log, history.log.log_end_offset
        for action in above:
            getattr(history, action[0])(*action[1:])
        first_dirty = data.draw(st.integers(0, end), "first dirty")
        before, untouched, sequences = entries(log), history.files_from(end), last_sequences(log)
        expected = compacted(
            before, first_dirty=first_dirty, end=end, aborted=frozenset(o for o in history.aborted_offsets if o < end)
        )

        # The cleaner flushes first, because recovery would report records removed after the recovery point as lost.
        log.flusher.flush()
        assert history.clean(first_dirty=first_dirty, end=end) == end
        assert entries(log) == expected
        assert last_sequences(log) == sequences
        assert history.files_from(end) == untouched
        assert_every_offset_reads_on(log, expected)

        assert history.clean(first_dirty=end, end=end, now_ms=NOW) == end
        assert entries(log) == expected

        log.abandon()
        reopened = open_log(directory, COMPACTED, recovery_point=log.recovery_point, cleaner_checkpoint=end)
        assert entries(reopened) == expected
        assert_every_offset_reads_on(reopened, expected)
        reopened.close()


@settings(examples(25), suppress_health_check=[HealthCheck.too_slow])
@given(histories, st.integers(1, 5))
def test_a_small_offset_map_takes_more_rounds_and_ends_the_same(actions, room):
    with tempfile.TemporaryDirectory() as directory:
        history = History(directory, actions)
        log, end = history.log, history.log.log_end_offset
        expected = compacted(entries(log), first_dirty=0, end=end, aborted=frozenset(history.aborted_offsets))
        dirty, rounds = 0, 0
        while dirty < end:
            cleaned_to = history.clean(first_dirty=dirty, memory=room * 216)
            assert cleaned_to is not None
            assert cleaned_to > dirty, "each round gets further"
            dirty, rounds = cleaned_to, rounds + 1
        assert entries(log) == expected
        log.close()


@settings(examples(25), suppress_health_check=[HealthCheck.too_slow])
@given(histories)
def test_in_the_end_deletions_and_markers_go_and_the_table_is_the_same(actions):
    with tempfile.TemporaryDirectory() as directory:
        history = History(directory, actions)
        log, end = history.log, history.log.log_end_offset
        table = last_values(e for e in entries(log) if e.offset not in history.aborted_offsets)
        now_ms = NOW
        for first_dirty in (0, end, end, end):
            history.clean(first_dirty=first_dirty, end=end, now_ms=now_ms)
            found = entries(log)
            assert last_values(found) == table
            now_ms += COMPACTED.delete_retention_ms
        assert [entry for entry in found if entry.value is None] == []
        kept_markers = {entry.offset for entry in found if entry.is_control}
        with_data = {batch.producer_id for batch in all_batches(log) if batch.is_transactional and not batch.is_control}
        markers = {b.last_offset: b.producer_id for b in all_batches(log) if b.is_control}
        assert all(markers[offset] in with_data for offset in kept_markers), "no marker without data stays"
        log.close()
