"""Runs log-backed state machines: one state machine per partition of an internal topic that this broker leads.

A request names a key (a group or transactional id), and the key determines a partition. The partition's state machine
decides the `Effects` of the request (records to log, replies, timers). The records among the effects are appended as
one batch to that partition, then replayed into the state machine. The replies are sent only after the batch is
committed (S40). Loading replays the log's records through the same method (`Machine.replay`), so a restart restores the
same state.

Requests for a partition that this broker does not lead get the error NOT_COORDINATOR. Requests for a partition that is
being loaded get COORDINATOR_LOAD_IN_PROGRESS. Loading reads the log in chunks, and other work runs between two chunks.

An unexpected exception of a step (call of a state machine) is logged once, with the key (group or transactional id) of
the request. The state of this key falls back to the logged state, as in a restart (`Machine.on_failed`). Requests that
wait for this key get UNKNOWN_SERVER_ERROR; other keys are not affected. If an exception is raised after the append and
before the end of the replay, the state machine differs from its log, so it is dropped and loaded again.

Kafka's counterpart is CoordinatorRuntime. Kafka's runtime rolls a state machine back to a snapshot in memory; this
runtime never rolls back. After a failed append nothing has been replayed, and after a loss of leadership the state
machine is dropped.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Collection, Iterator
from functools import partial
from typing import Any, Final, Generic

from oncelog.metadata.internal_topics import partition_for
from oncelog_broker.coordinator.appending import APPEND_ERRORS, append_batch, append_records, divided
from oncelog_broker.coordinator.effects import Effects, Interruption, Job, TimerKey
from oncelog_broker.coordinator.loading import replay_log
from oncelog_broker.coordinator.shard import M, R, Shard, Waiter
from oncelog_broker.coordinator.timer_wakes import TIMER_RETRY_SECONDS, TimerWakes
from oncelog_broker.metadata.model.image import NO_LEADER, ClusterImage, Topic
from oncelog_broker.replication.partition import Partition
from oncelog_broker.replication.purgatory import no_longer_than
from oncelog_broker.replication.replicas import Replicas
from oncelog_broker.runtime.answers import Answer, settled, then
from oncelog_broker.runtime.host import Host
from oncelog_broker.runtime.steps import Steps
from oncelog_protocol.errors import ErrorCode, KafkaError
from oncelog_protocol.records.batch import (
    NO_PRODUCER_ID,
    CorruptBatch,
)
from oncelog_protocol.records.compression import Compression

logger = logging.getLogger(__name__)

COMMIT_SECONDS: Final = 5.0
"""Maximum seconds for which replies wait for the in-sync replicas."""
LOAD_RETRY_SECONDS: Final = 5.0
"""If a log could not be read to its end, it is read again after this number of seconds. After each further failure in
the same leadership, the pause is twice as long.
"""
MAX_LOAD_RETRY_SECONDS: Final = 60.0
"""The longest pause, in seconds, before a log is read again. Each attempt reads the whole log up to the error, so short
pauses would keep a core busy for as long as the error lasts.
"""
REPLIES_PER_TURN: Final = 32
"""Maximum number of replies of one step (call of a state machine) that are sent in one iteration of the event loop."""


class StepFailed(KafkaError):
    """The error UNKNOWN_SERVER_ERROR for a step (call of a state machine) that raised an unexpected exception. The
    state of the step's key (group or transactional id) has fallen back to the last logged state.
    """


class _Diverged(Exception):
    """A step (call of a state machine) raised an exception after its records were appended, so the state machine may
    differ from its log.
    """


class CoordinatorRuntime(Generic[M]):
    """Runs all state machines of one internal topic on this broker."""

    def __init__(
        self,
        topic: str,
        make_machine: Callable[[int], M],
        replicas: Replicas,
        host: Host,
        compression: Compression = Compression.NONE,
        on_end: Callable[[Shard[M], Any, int], None] = lambda shard, end, epoch: None,
        commit_seconds: float = COMMIT_SECONDS,
    ) -> None:
        """`make_machine(index)` creates the empty state machine of a partition. `on_end` is called for each value in
        `Effects.ends` (such as a transaction whose markers must be written) after the step's records are committed. Its
        arguments are the value and the leader epoch in which the value was logged or loaded. If the records of a step
        (call of a state machine) are not committed within `commit_seconds`, the replies of the step are
        COORDINATOR_NOT_AVAILABLE errors.
        """
        self._topic = topic
        self._make_machine = make_machine
        self._replicas = replicas
        self._clock = host.clock
        self._tasks = host.tasks
        self._slices = host.slices
        self._on_end = on_end
        self._deadlines = host.deadlines
        self._commit_seconds = commit_seconds
        self.compression = compression
        self._shards: dict[int, Shard[M]] = {}
        self.partitions = 0
        """The number of partitions of the internal topic; 0 while the topic does not exist."""
        self._image_topic: Topic | None = None
        self._is_closed = False
        self.wakes = TimerWakes(host, self._shards, self._may_lead, self._fire)

    # --- methods that load and unload the partitions that this broker leads -------------------------------------------

    def on_image(self, image: ClusterImage) -> None:
        """Load the partitions that this broker leads now, and unload the partitions that this broker no longer leads.
        Call this method after `Replicas.on_image`."""
        topic = image.topic(self._topic)
        if topic is self._image_topic:
            return
        self._image_topic = topic
        self.partitions = 0 if topic is None else len(topic.partitions)
        self._follow()

    def on_opened(self, topics: Collection[str]) -> None:
        """Load partitions of these topics whose logs were opened after the last cluster image was applied."""
        if self._topic in topics:
            self._follow()

    def _follow(self) -> None:
        """Load the partitions that this broker leads and has not loaded, and unload the other partitions. After `close`
        nothing is loaded again: the log of a stopping broker may lack the records of the next coordinator.
        """
        if self._is_closed:
            return
        led: dict[int, Partition] = {}
        for index in () if self._image_topic is None else self._image_topic.partitions:
            partition = self._replicas.led_partition(self._topic, index)
            if partition is not None:
                led[index] = partition
        for index, shard in list(self._shards.items()):
            if led.get(index) is not shard.partition:
                self._unload(shard)
        for index, partition in led.items():
            if index not in self._shards:
                self._begin(Shard(index, partition, self._make_machine(index)))

    def _begin(self, shard: Shard[M], retry_seconds: float = LOAD_RETRY_SECONDS) -> None:
        self._shards[shard.index] = shard
        if shard.partition.log.log_start_offset == shard.partition.log.log_end_offset:
            self._loaded(shard)
        else:
            self._tasks.spawn(f"load {self._topic}-{shard.index}", self._load(shard, retry_seconds))

    async def _load(self, shard: Shard[M], retry_seconds: float) -> None:
        """Replay the log of `shard` (a partition with its state machine). If the log cannot be read, the error is
        logged, and the log is loaded again after `retry_seconds`. If a record makes the state machine raise an
        exception, the shard is marked as failed and serves no requests.
        """
        log, started = shard.partition.log, self._clock.monotonic()
        offset = log.log_start_offset
        try:
            # Records that were appended after the end of the previous replay, such as a marker, are replayed, too.
            while offset < shard.partition.log.log_end_offset and self.is_current(shard):
                offset = await settled(self._slices.run(replay_log(shard, offset, partial(self.is_current, shard))))
        except (KafkaError, CorruptBatch, ValueError) as error:
            shard.failure = str(error)
            logger.error("coordinator not loaded", extra={"partition": log.name, "reason": error})
            # The log is loaded again later, because by then the disk may work again, or another broker may lead the
            # partition.
            self._deadlines.after(retry_seconds, partial(self._load_again, shard, retry_seconds))
            return
        except Exception as error:
            shard.failure = f"{type(error).__name__}: {error}"
            logger.exception("coordinator not loaded", extra={"partition": log.name})
            return
        if self._shards.get(shard.index) is shard:
            logger.info(
                "coordinator loaded",
                extra={"partition": log.name, "seconds": round(self._clock.monotonic() - started, 3)},
            )
            self._loaded(shard)

    def _load_again(self, shard: Shard[M], paused_seconds: float) -> None:
        """Load `shard`, which could not be loaded, again after a pause of `paused_seconds`."""
        if self.is_current(shard):
            self._unload(shard)
            if self._replicas.led_partition(self._topic, shard.index) is shard.partition:
                fresh = Shard(shard.index, shard.partition, self._make_machine(shard.index))
                self._begin(fresh, min(2 * paused_seconds, MAX_LOAD_RETRY_SECONDS))
            self._follow()

    def _loaded(self, shard: Shard[M]) -> None:
        shard.is_loaded = True
        self._slices.run(self._begin_timers(shard))

    def _begin_timers(self, shard: Shard[M]) -> Steps[None]:
        """Carry out the effects (timers, ends) that the state machine requests after loading. A timer that a request
        has set meanwhile is kept."""
        try:
            for effects in shard.machine.on_loaded():
                if not self.is_current(shard):
                    return
                effects.timers = [(key, seconds) for key, seconds in effects.timers if key not in shard.timers]
                self._carry_out(shard, effects)
                yield None
        except Exception as error:
            shard.is_loaded, shard.failure = False, f"{type(error).__name__}: {error}"
            logger.exception("coordinator not loaded", extra={"partition": shard.partition.log.name})

    def _unload(self, shard: Shard[M]) -> None:
        del self._shards[shard.index]
        error = KafkaError(ErrorCode.NOT_COORDINATOR)
        replies: list[tuple[Any, Any]] = []
        try:
            effects = shard.machine.on_unloaded(error)
            assert not effects.records, "a broker that no longer leads must not write"
            replies += effects.replies
        except Exception as unthought_of:
            self._unthought_of(shard, None, unthought_of)
        replies += [(waiter, error) for waiter in shard.all_waiting()]
        self._send(replies, ErrorCode.NONE)

    def close(self) -> None:
        """Unload all shards (state machines with their partitions) for good when the broker stops: waiting requests get
        an error that makes their clients find the new coordinator.
        """
        self._is_closed = True
        for shard in list(self._shards.values()):
            self._unload(shard)

    # --- methods that run requests on the state machines --------------------------------------------------------------

    def machines(self) -> Iterator[M]:
        """Return the loaded state machines of this broker, for requests that do not name a key."""
        return (shard.machine for shard in self._shards.values() if shard.is_loaded)

    @property
    def is_loading(self) -> bool:
        """Whether any partition that this broker leads is still being loaded."""
        return any(not shard.is_loaded and shard.failure is None for shard in self._shards.values())

    def partition_of(self, key: str) -> int | None:
        """Return the index of the partition that stores `key`; None while the topic does not exist."""
        return partition_for(key, self.partitions) if self.partitions else None

    def leader_of(self, key: str) -> int:
        """Return the id of the broker that leads the partition of `key`, according to the cluster image; NO_LEADER if
        no leader is known.
        """
        index = self.partition_of(key)
        if index is None or self._image_topic is None:
            return NO_LEADER
        return self._image_topic.partitions[index].leader

    def leader_epoch_of(self, key: str) -> int:
        """Return the leader epoch of the partition of `key`, according to the cluster image; -1 if the partition is not
        known.
        """
        index = self.partition_of(key)
        if index is None or self._image_topic is None:
            return -1
        return self._image_topic.partitions[index].leader_epoch

    def shard(self, key: str) -> Shard[M]:
        """Return the loaded shard (partition with its state machine) that stores `key`. Raises KafkaError
        NOT_COORDINATOR, COORDINATOR_LOAD_IN_PROGRESS.
        """
        index = self.partition_of(key)
        shard = None if index is None else self._shards.get(index)
        if shard is None or not (shard.is_led and self._may_lead()):
            raise KafkaError(ErrorCode.NOT_COORDINATOR)
        if not shard.is_loaded:
            if shard.failure is not None:
                raise KafkaError(ErrorCode.NOT_COORDINATOR, f"the coordinator is not loaded: {shard.failure}")
            raise KafkaError(ErrorCode.COORDINATOR_LOAD_IN_PROGRESS)
        return shard

    def _may_lead(self) -> bool:
        """Whether this broker is certainly the only coordinator of its partitions at present. While the result is
        False, requests are refused and timers wait. A change that was made during this time could be lost, because
        another coordinator may exist.
        """
        return self._replicas.may_lead is None or self._replicas.may_lead()

    def write(
        self, key: str, operation: Callable[[M, Waiter[R]], Effects], failed: Callable[[KafkaError], R]
    ) -> Answer[R]:
        """Run `operation` on the state machine of `key` and carry out its effects (records, replies, timers). Returns
        the response, or a future of the response.

        The second argument of the operation is the waiter (the waiting request), which this operation or a later
        operation replies to. The operation raises KafkaError to refuse the request. `failed` translates an error into a
        response.
        """
        waiter: Waiter[R] = Waiter(failed)
        try:
            shard = self.shard(key)
            self.step(shard, lambda machine: operation(machine, waiter), key)
        except KafkaError as error:
            return failed(error.as_value())
        return _outcome(shard, key, waiter)

    def read(self, key: str, query: Callable[[M], R], failed: Callable[[KafkaError], R]) -> Answer[R]:
        """Run a read on the state machine of `key`; returns the response, or a future of the response. All state in the
        response is committed before the response is sent.
        """
        waiter: Waiter[R] = Waiter(failed)
        effects = Effects()
        try:
            shard = self.shard(key)
            effects.reply(waiter, query(shard.machine))
        except KafkaError as error:
            return failed(error.as_value())
        # A read changes nothing, so after an exception the state of the key need not be restored.
        except Exception as error:
            return failed(self._unthought_of(shard, key, error))
        self._carry_out(shard, effects)
        return waiter.outcome()

    def step(self, shard: Shard[M], operation: Callable[[M], Effects], key: str | None = None) -> int:
        """Run an operation for `key` and carry out its effects (records, timers); returns the number of logged records.

        Raises KafkaError if the records could not be logged, or if the operation refuses the request by raising a
        KafkaError. Raises StepFailed if the operation raised an unexpected exception.
        """
        try:
            effects = operation(shard.machine)
            self._carry_out(shard, effects)
        except (KafkaError, Interruption):
            raise
        except Exception as error:
            failure = self._unthought_of(shard, key, error)
            self._fall_back(shard, key, failure, reload=isinstance(error, _Diverged))
            raise failure from error
        return len(effects.records)

    # --- methods for fast lanes, which do the effects of a usual request without an `Effects` object ------------------

    def led_shard(self, index: int, partitions: int) -> Shard[M] | None:
        """Return the shard of the partition `index`, which stored a key when the topic had this many `partitions`. The
        result is None if another partition may store the key now, or if another broker may be the coordinator.
        """
        shard = self._shards.get(index)
        if shard is None or not shard.is_loaded or self.partitions != partitions:
            return None
        partition = shard.partition
        if partition.is_resigned or partition.log.state.offline_reason is not None:
            # Unlike `Shard.is_led`, this condition also excludes a log that is paused for a move: the fast lane leaves
            # such a request to the handler. Attributes instead of the properties save two calls for each request.
            return None
        may_lead = self._replicas.may_lead
        return shard if may_lead is None or may_lead() else None

    def ready_shard(self, index: int, partitions: int) -> Shard[M] | None:
        """Like `led_shard`, but also returns None while the shard may not respond because one of its records is not
        committed yet.
        """
        shard = self.led_shard(index, partitions)
        return shard if shard is not None and shard.is_committed else None

    def append(self, shard: Shard[M], key: str, batch: bytearray, record: Any, too_large: ErrorCode) -> None:
        """Append the batch of one record of `key`, and replay the record, as `step` does for a step whose only record
        this is. Raises KafkaError (`too_large`: see `Effects`), StepFailed.
        """
        try:
            shard.machine.replay(record, append_batch(shard.partition, batch, too_large), NO_PRODUCER_ID)
        except KafkaError:
            raise
        except Exception as error:
            failure = self._unthought_of(shard, key, error)
            self._fall_back(shard, key, failure, reload=True)
            raise failure from error

    def when_committed(
        self, shard: Shard[M], key: str, response: R, failed: Callable[[KafkaError], R], end: Any = None
    ) -> Answer[R]:
        """Return `response`, or a future of the response if records of the shard are not committed yet. `failed`
        translates an error into a response. `end`: if not None, `on_end` is called with this value when all records
        are committed, as for `Effects.ends`.
        """
        partition = shard.partition
        if shard.is_committed:
            if end is not None:
                self._on_end(shard, end, partition.leader_epoch)
            return response
        waiter: Waiter[R] = Waiter(failed)
        effects = Effects()
        effects.reply(waiter, response)
        if end is not None:
            effects.ends.append(end)
        self._carry_out(shard, effects)
        return _outcome(shard, key, waiter)

    # --- methods about shards -----------------------------------------------------------------------------------------

    def end_transaction(self, index: int, producer_id: int, *, committed: bool) -> None:
        """Replay a transaction marker that was appended to the partition `index`. While the partition is being loaded,
        nothing is done, because loading reads the marker."""
        shard = self.loaded_shard(index)
        if shard is None:
            return
        try:
            shard.machine.replay_end_transaction(producer_id, committed)
        except Exception as error:
            self._fall_back(shard, None, self._unthought_of(shard, None, error), reload=True)

    def loaded_shard(self, index: int) -> Shard[M] | None:
        """Return the shard (state machine with its log) of a partition that this broker leads and has loaded; None for
        any other partition.
        """
        shard = self._shards.get(index)
        return shard if shard is not None and shard.is_loaded else None

    def all_shards(self) -> list[Shard[M]]:
        """Return a list of all shards (partitions with their state machines) of this broker, including shards that are
        loading or failed. Unlike the list of `loaded_shards`, this list is complete even while another broker may be
        the coordinator.
        """
        return list(self._shards.values())

    def may_step(self, shard: Shard[M]) -> bool:
        """Whether the state machine of `shard` (a partition with its state machine) can handle a request now: the shard
        is current and loaded, and no other broker can be the coordinator.
        """
        return self.is_current(shard) and shard.is_loaded and shard.is_led and self._may_lead()

    def loaded_shards(self) -> list[Shard[M]]:
        """Return a list of the present loaded shards (partitions with their state machines), for background work that
        takes several iterations of the event loop. The list is empty while another broker may be the coordinator.
        """
        if not self._may_lead():
            return []
        return [shard for shard in self._shards.values() if shard.is_loaded and shard.is_led]

    def is_current(self, shard: Shard[M]) -> bool:
        """Whether `shard` (a partition with its state machine) is still this broker's shard for its partition, and has
        been neither unloaded nor replaced.
        """
        return self._shards.get(shard.index) is shard

    # --- methods for exceptions of state machines ---------------------------------------------------------------------

    def _unthought_of(self, shard: Shard[M], key: str | None, error: Exception) -> StepFailed:
        """Log an unexpected exception of a state machine once, and return the error for the clients."""
        cause = error.__cause__ if isinstance(error, _Diverged) and error.__cause__ is not None else error
        logger.error("step failed", extra={"partition": shard.partition.log.name, "key": key}, exc_info=cause)
        return StepFailed(ErrorCode.UNKNOWN_SERVER_ERROR, f"{type(cause).__name__}: {cause}")

    def _fall_back(self, shard: Shard[M], key: str | None, failure: StepFailed, *, reload: bool) -> None:
        """After the state machine raised an exception, restore the logged state of `key`. With `reload`, the entire
        state machine is loaded from the log again.
        """
        if not reload and key is not None:
            for waiter in shard.waiting(key):
                waiter.answer(failure)
            try:
                effects = shard.machine.on_failed(key)
                assert not effects.records, "the records that are already logged"
                self._carry_out(shard, effects)
            except Exception as error:
                self._unthought_of(shard, key, error)
                reload = True
        if reload and self.is_current(shard):
            self._unload(shard)
            self._begin(Shard(shard.index, shard.partition, self._make_machine(shard.index)))

    # --- methods that carry out effects -------------------------------------------------------------------------------

    def _carry_out(self, shard: Shard[M], effects: Effects) -> None:
        """Carry out the effects of a step (call of the state machine), in the order that the module `effects`
        describes.

        Raises KafkaError if the records could not be appended; in that case none of the effects happens except the step
        in `Effects.if_not_logged`.
        """
        if effects.records:
            try:
                self._log(shard, effects)
            except KafkaError as error:
                if effects.if_not_logged is not None:
                    self._carry_out(shard, effects.if_not_logged(error))
                raise
        for change in effects.changes:
            change()
        is_sooner = False
        for key, seconds in effects.timers:
            if seconds is None:
                shard.timers.cancel(key)
            elif shard.timers.set(key, self._clock.monotonic() + seconds):
                is_sooner = True
        if is_sooner:
            self.wakes.wake_in_time(shard)
        for job in effects.jobs:
            self._begin_job(shard, job)
        if effects.afterwards is not None:
            self._carry_out(shard, effects.afterwards())
        # The replies of a step without records also wait until earlier records are committed, if the step may have read
        # uncommitted records.
        partition = shard.partition
        if partition.high_watermark >= partition.log.log_end_offset:
            self._send(effects.replies, ErrorCode.NONE)
            self._hand_over(shard, effects.ends, partition.leader_epoch, ErrorCode.NONE)
            return
        if effects.replies:
            committed = partition.committed(partition.log.log_end_offset)
            then(no_longer_than(self._commit_seconds, committed, self._deadlines), partial(self._send, effects.replies))
        if effects.ends:
            # Unlike replies, the values in `ends` wait for the commit without a time limit. Each value belongs to a
            # logged decision, which this broker must execute unless it loses the leadership.
            committed = partition.committed(partition.log.log_end_offset, needs_replicas=False)
            then(committed, partial(self._hand_over, shard, effects.ends, partition.leader_epoch))

    def _send(self, replies: list[tuple[Any, Any]], code: ErrorCode) -> None:
        """Send the replies of a step. `code` is the result of waiting for the commit: if it is an error, each waiting
        request gets this error instead of its reply. Each reply is encoded and written in the next iteration of the
        event loop, so many replies are spread over several iterations (S87)."""
        error = None if code is ErrorCode.NONE else KafkaError(APPEND_ERRORS.get(code, code))
        for waiter, response in replies[:REPLIES_PER_TURN]:
            waiter.answer(response if error is None else error)
        if len(replies) > REPLIES_PER_TURN:
            self._tasks.spawn("answers of a coordinator", self._send_rest(replies[REPLIES_PER_TURN:], error))

    async def _send_rest(self, replies: list[tuple[Any, Any]], error: KafkaError | None) -> None:
        for number, (waiter, response) in enumerate(replies):
            if number % REPLIES_PER_TURN == 0:
                await asyncio.sleep(0)
            waiter.answer(response if error is None else error)

    def _hand_over(self, shard: Shard[M], ends: list[Any], epoch: int, code: ErrorCode) -> None:
        """Call `on_end` for each value in `ends` (for example a transaction whose markers must be written), unless
        `code` is an error. An error means that this broker is no longer the coordinator. The next coordinator finds
        these values in the log.
        """
        for end in ends if code is ErrorCode.NONE else ():
            self._on_end(shard, end, epoch)

    def _log(self, shard: Shard[M], effects: Effects) -> None:
        """Append the records, and replay them into the state machine. Raises KafkaError if a batch cannot be appended;
        that batch has changed nothing. Raises _Diverged if the replay fails.
        """
        encoded = list(map(shard.machine.encode, effects.records))
        producer_id = NO_PRODUCER_ID if effects.producer is None else effects.producer[0]
        start, sizes = 0, [len(encoded)]
        if effects.may_be_divided:
            sizes = divided(encoded, shard.partition.log.config.max_message_bytes)
        for size in sizes:
            records = effects.records[start : start + size]
            try:
                base_offset = append_records(
                    shard.partition, encoded[start : start + size], effects, self._clock.now_ms(), self.compression
                )
                for offset, record in enumerate(records, base_offset):
                    shard.machine.replay(record, offset, producer_id)
            except KafkaError:
                raise
            except Exception as error:
                raise _Diverged from error
            start += size

    # --- methods that run jobs ----------------------------------------------------------------------------------------

    def _begin_job(self, shard: Shard[M], job: Job) -> None:
        """Run a job (long background work) in slices, unless a job with the same name is running for the same key."""
        begun = (job.key, job.name)
        if begun not in shard.jobs:
            shard.jobs.add(begun)
            self._tasks.spawn("job of a coordinator", self._do_job(shard, job))

    async def _do_job(self, shard: Shard[M], job: Job) -> None:
        """Run a job (long background work) and pass its result to the state machine. If the job fails, a later request
        for the key starts the job again.
        """
        try:
            result = await settled(self._slices.run(job.steps()))
            if self.may_step(shard):
                self.step(shard, lambda machine: machine.on_job(job.key, result), job.key)
        except StepFailed:
            pass  # the error of the job is logged, and the state of the key has been restored
        except KafkaError as error:
            logger.error(
                "the records of a finished job could not be appended",
                extra={"key": job.key, "job": job.name, "reason": error},
            )
        except Exception:
            logger.exception("job failed", extra={"key": job.key, "job": job.name})
        finally:
            shard.jobs.discard((job.key, job.name))

    # --- timers -------------------------------------------------------------------------------------------------------

    def _fire(self, shard: Shard[M], timer: TimerKey) -> None:
        """Let the state machine handle one expired timer. Never raises, because the timers of other keys must still run
        afterwards.
        """
        try:
            self.step(shard, lambda machine: machine.on_timer(timer), shard.machine.key_of(timer))
        except StepFailed:
            # After an exception, the timers of the key have been restored together with its state.
            return
        except KafkaError as error:
            logger.error("timer failed", extra={"partition": shard.partition.log.name, "timer": timer, "reason": error})
            self.wakes.set(shard, timer, TIMER_RETRY_SECONDS)


def _outcome(shard: Shard[Any], key: str, waiter: Waiter[R]) -> Answer[R]:
    """Return the reply to `waiter`; if a later step replies, a future of the reply."""
    outcome = waiter.outcome()
    if isinstance(outcome, asyncio.Future):
        shard.wait(key, waiter, outcome)
    return outcome
