"""Writes a batch with many tasks so that readers see either all of its rows once, or none of them, whichever process
dies.

Each task leaves its transaction open. The driver writes a single decision, which says that all transactions of the
batch are to be committed; after that it commits these transactions. A later run of the query commits the decided
transactions, and aborts all others:

1. A task checks that the batch is not decided yet, writes and flushes its rows, and leaves its transaction open.
2. The driver checks that all transactions are open, and removes their timeouts if the brokers can (KIP-939). Then the
   driver writes the decision, commits each transaction, and aborts the open transactions of other attempts (the sweep).
3. A new run becomes the owner of the query, commits the decided transactions, writes its name into the state, and
   sweeps all other transactions.

Why this protocol is correct:

- *A decision is unique.* Every write of the state is "become the owner, read, write", and fails if another run has
  become the owner in between. Each state therefore follows from the previous state, as with compare-and-set. A run that
  has written its name into the state has seen the last decision of all older runs. Only after that does this run abort
  the open transactions of older runs.
- *Decided means written.* A decision names only transactions that were flushed and open. The sweep does not abort
  decided transactions: it aborts only transactions of its own run, and of runs that are known to be over. A decided
  transaction is not aborted by its timeout either, if the driver removed the timeout before the decision.
- *Not decided means aborted*, by the next sweep or by the timeout. If the driver died between removing the timeouts and
  the decision, only the next sweep aborts the transactions. A write without a writeId has no next run, so its
  transactions keep their timeouts.
- *A write without a writeId* has its own name, which contains the id of its run. No other run becomes the owner of this
  name before a decision is written, because other runs find the name only by its decision. So the tasks need not take
  the query over, and the first state is the decision. Only under its own name may a run begin without a state.
- *A replay* of a decided batch must have the decided rows, and writes only the lost partitions. The state has the
  digests of the last batches. A replay may bring other rows under the number of a decided batch (because the checkpoint
  was restored from a backup, or its last entry was torn); the sink refuses such rows instead of skipping them.

One case remains: the coordinator aborts a transaction that is decided and not yet committed. Without two-phase commit,
the coordinator may do this in two situations. In the first, the driver was down for longer than
`transaction.timeout.ms`. In the second, another attempt with the same transactional id, which was paused, resumed at
just that moment. This other attempt belongs either to an earlier attempt of the stage, in which it has the same number,
or to the batch that was `names.TURNS` batches earlier. The next run detects such a transaction, keeps its partition in
`State.lost`, and writes the partition again if its replay brings the same rows. If the replay brings other rows (for
example the same rows in other partitions), the batch is refused, so no row is lost without an error.
"""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable, Iterable, Sequence
from dataclasses import replace
from typing import Any, Final, TypeVar

from oncelog.prepared_transaction import PreparedTransaction
from oncelog_pipeline.sink.digest import Digest, digest_sum
from oncelog_pipeline.sink.names import short, unnamed_query
from oncelog_pipeline.sink.operations import (
    NEW_CHECKPOINT,
    BatchDiffers,
    Cluster,
    DecidedButAborted,
    NotAllOpen,
    NotRepairable,
    Owner,
    SetBack,
    StateLost,
    Superseded,
    TakenOver,
    TaskProducer,
    TooManyTasks,
)
from oncelog_pipeline.sink.state import KEPT_BATCHES, MAX_BYTES, Batch, State, TaskMessage, TaskTransaction

P = TypeVar("P", bound=TaskProducer)

LEAST_TIME_LEFT: Final = 1 / 3
"""When the driver decides to commit a batch, at least this share of transaction.timeout.ms must be left, because
otherwise the commits might come too late.
"""
FIRST_PARTITION: Final = 0
"""If the query must be taken over, the task of this partition does so immediately; the other tasks first wait for that
task.
"""
POLLS: Final = 20
POLL_SECONDS: Final = 0.1
"""While the other tasks wait, they read the state this many times, with a pause of POLL_SECONDS before each read."""
LONGEST_WAIT_SECONDS: Final = 10.0
"""The longest wait, in seconds, between two attempts to take over while other tasks also try."""

logger = logging.getLogger(__name__)


async def write_task(
    cluster: Cluster[P],
    batch: Batch,
    partition: int,
    attempt: int,
    unique: int,
    write: Callable[[P], Awaitable[None]],
) -> TaskMessage:
    """Run one attempt of a task: `write` sends the task's rows. `unique` is Spark's taskAttemptId.

    If the commit of the batch is already decided, `write` gets a counter in place of a producer. The counter only
    computes the digest of the rows, so that the driver can compare it with the digest of the decided batch. Raises
    TakenOver, SetBack, and the errors of `write` and the cluster; after an error no record of this attempt ever becomes
    visible.
    """
    if not await is_wanted(cluster, batch, partition):
        counter = cluster.counting()
        await write(counter)
        return TaskMessage(batch, partition, None, counter.digest)
    transactional_id = batch.query.task_id(batch.run, batch.number, partition, attempt)
    if await cluster.is_ongoing(transactional_id):
        # An earlier attempt of the stage has used the same id, and the driver may already have decided to commit its
        # transaction. Do not abort that transaction by opening a producer with the same id.
        transactional_id += f"/{unique}"
    producer = await cluster.open_task(transactional_id)
    try:
        await write(producer)
        return TaskMessage(batch, partition, await producer.prepare(), producer.digest)
    finally:
        await producer.close()


async def is_wanted(cluster: Cluster[Any], batch: Batch, partition: int) -> bool:
    """Return whether the rows of this partition must still be written. The first task that calls this function takes
    over the query for its run. The tasks of a write without a writeId need not do that, because no other run has its
    name. Raises TakenOver, SetBack.
    """
    if batch.query.is_unnamed and not await cluster.has_had_state(batch.query):
        return True  # the first state is the decision
    state = await cluster.read_state(batch.query)
    if state is None and batch.query.is_unnamed:
        # The state was removed after the decision. No driver would end the transaction of such a late attempt.
        raise TakenOver(f"{batch}: the write has ended")
    polls = 0 if partition == FIRST_PARTITION else POLLS
    while not _is_settled(state, batch) and polls:
        polls -= 1
        await cluster.pause(POLL_SECONDS)
        state = await cluster.read_state(batch.query)
    if state is None:
        await _check_not_lost(cluster, batch, partition)
    if not _is_settled(state, batch):
        state = await take_over(cluster, batch)
    assert state is not None
    if state.batch > batch.number:
        if state.run != batch.run:
            raise set_back(batch, state.batch)
        return False  # this is a late attempt of a finished stage, or a replay from a restored checkpoint
    return state.batch < batch.number or partition in state.lost


async def _check_not_lost(cluster: Cluster[Any], batch: Batch, partition: int) -> None:
    """Raise StateLost if the query has no state although it has written before."""
    marker = await cluster.marker(batch.query.partition_id(partition))
    if marker is not None and marker.batch >= batch.number:
        raise StateLost(
            f"{batch}: partition {partition} was written with delivery=exactly-once-per-task; the rows that it "
            "has written are"
            " unknown here. Continue with that delivery until the batch is done, then change it"
        )
    # Check this before the run becomes the owner, because becoming the owner makes the coordinator forget the previous
    # transaction. Read the state again after the check, as the state may have been written in the meantime.
    if await cluster.has_committed(batch.query.id) and await cluster.read_state(batch.query) is None:
        raise StateLost(
            f"{batch}: this query has decided batches before, but the state topic does not have its state: was the"
            " topic deleted, or the option stateTopic changed? To go on without, where a batch that was written last"
            f" may be written again: oncelog pipeline state reset {batch.query.name} --batch {batch.number - 1}"
        )


def _is_settled(state: State | None, batch: Batch) -> bool:
    """Return whether this run need not take over the query. That is the case if the state belongs to this run already,
    or if it has a later batch but no digest of this batch, so that a replay could not be compared. Raises TakenOver.
    """
    if state is None:
        return False
    _check_not_over(state, batch)
    return state.run == batch.run or (state.batch > batch.number and state.digest_of(batch.number) is None)


def _check_not_over(state: State, batch: Batch) -> None:
    """Raise TakenOver if another run has taken over from this run, so that this run's tasks do not take over again."""
    if state.run != batch.run and short(batch.run) in state.former:
        raise TakenOver(f"{batch}: run {short(state.run)} has taken over")


async def take_over(cluster: Cluster[Any], batch: Batch) -> State:
    """Make this run the only run that may decide to commit a batch, and commit the transactions that older runs have
    decided to commit. Raises TakenOver.

    Returns the state after the takeover. The returned state belongs to another run only if that run has decided a later
    batch, so much later that this batch can no longer be compared.
    """
    wait_seconds = POLL_SECONDS
    while True:
        owner = await cluster.own(batch.query)
        try:
            found = await cluster.read_state(batch.query)
            if found is not None and _is_settled(found, batch):
                return found
            state = (
                State(batch.run) if found is None else found.taken_over(batch.run, await _finish(cluster, found, batch))
            )
            await owner.write(state)
        except Superseded:
            pass
        else:
            # Abort the transactions of older runs only now: while the state had an older run's name, that run could
            # still decide to commit them.
            await _sweep(cluster, batch, state.former)
            return state
        finally:
            await owner.close()
        # Another task of this run may be taking over the query at the same moment. If this task took ownership again
        # now, the two tasks could keep each other from finishing.
        await cluster.pause(wait_seconds)
        wait_seconds = min(2 * wait_seconds, LONGEST_WAIT_SECONDS)
        found = await cluster.read_state(batch.query)
        if found is not None and _is_settled(found, batch):
            return found


async def _finish(cluster: Cluster[Any], found: State, batch: Batch) -> frozenset[int]:
    """Commit the transactions that an older run has decided for this batch or a later batch. Return the lost partitions
    of this batch. The decision of an earlier batch needs no work here, because Spark begins a batch only after the
    previous batch has ended.
    """
    if found.batch < batch.number:
        return frozenset()
    return frozenset(found.lost) | await commit_decided(cluster, found.transactions, batch)


def set_back(batch: Batch, decided: int) -> SetBack:
    """Return the error for a run whose checkpoint is older than the last decision, if its replay has other rows than
    the decided batch, or cannot be compared with it any more.
    """
    return SetBack(
        f"{batch}: batch {decided} of this query is decided, so the checkpoint was set back (a backup, a power cut), or"
        f" another query uses it; and batch {batch.number} cannot be passed over, as it brings other rows than were"
        f" decided, or was decided more than {KEPT_BATCHES} batches ago. Nothing was written. Begin a new checkpoint"
        f" {NEW_CHECKPOINT}, or go on with this one, and rows that were written are written again: oncelog pipeline"
        f" state reset {batch.query.name} --batch {batch.number - 1}"
    )


async def commit(
    cluster: Cluster[Any],
    batch: Batch,
    messages: Iterable[TaskMessage],
    target: str | None = None,
    *,
    removes_state: bool = False,
) -> bool:
    """Write the decision to commit the batch, which covers the transactions of all its tasks, and commit these
    transactions. May be called again for the same batch.

    `target` (see `State`) is stored with the decision. With `removes_state` the owner that has written the decision
    removes it when all transactions are committed. Returns whether the state topic has a state of the query.

    If TakenOver, NotAllOpen, TooManyTasks, NotRepairable or BatchDiffers is raised, no decision was written, or a later
    write of the same rows has taken over the decision. If DecidedButAborted is raised, the decision remains, and the
    next run repairs it. After any other error of the cluster the batch may or may not be decided; `abort` finds out.
    """
    told = list(messages)
    written = [
        TaskTransaction(message.written, message.partition, message.digest)
        for message in told
        if message.written is not None
    ]
    digest = batch_digest(told)
    state = await _own_state(cluster, batch)
    if state.batch > batch.number:
        if written:
            raise TakenOver(f"{batch}: batch {state.batch} has been decided meanwhile")
        if digest is None or digest != state.digest_of(batch.number):
            raise set_back(batch, state.batch)
    elif state.batch == batch.number and not state.lost:
        if written and [each.identity for each in written] != [each.identity for each in state.transactions]:
            raise TakenOver(f"{batch}: was decided already, with other transactions")
        if not written:
            _check_same(state, batch, digest)
        await _end(cluster, state, batch)
    elif written or state.lost:
        if state.lost:
            _check_repair(state, batch, written, digest)
        kept = await _keep_open(cluster, batch, written)
        decision = state.decided(batch.number, kept, digest, target)
        owner = await _decide(cluster, state, batch, decision)
        try:
            await _end(cluster, decision, batch)
            await _sweep(cluster, batch, (short(batch.run), *state.former))
            if removes_state:
                await owner.write(None)
        except Superseded:
            raise TakenOver(
                f"{batch}: a later write of the same rows has taken this one over, as its driver seemed dead"
            ) from None
        finally:
            await owner.close()
        return not removes_state
    await _sweep(cluster, batch, (short(batch.run), *state.former))
    return state.batch >= batch.number or not batch.query.is_unnamed


async def abort(cluster: Cluster[Any], batch: Batch, messages: Iterable[TaskMessage]) -> None:
    """Abort a batch whose commit is not decided. If the commit is decided, finish it: Spark also calls `abort` after a
    `commit` that has raised an error. If a newer run has taken over, do nothing.
    """
    state = await _state(cluster, batch)
    if state is None or state.run != batch.run:
        return
    # becoming the owner fences an earlier owner, so a decision in progress is either written by now or will never be
    # written
    owner = await cluster.own(batch.query)
    await owner.close()
    state = await _state(cluster, batch)
    if state is None or state.run != batch.run or state.batch > batch.number:
        return
    decided = state.transactions if state.batch == batch.number else ()
    await commit_decided(cluster, decided, batch)
    told = [message.written for message in messages if message.written is not None]
    known = {each.written.first for each in decided}
    await cluster.end([each.transaction for each in told if each.first not in known], commits=False)
    await _sweep(cluster, batch, (short(batch.run), *state.former))


async def reset(cluster: Cluster[Any], seen: State | None, batch: Batch) -> State:
    """Make `batch.number` the last decided batch, as an operator orders; decided transactions that are still open are
    committed first.

    A replay of that batch is then skipped, whatever rows it has, and lost partitions are not written again; later
    batches are written. `batch.run` is a new run of the operator's own, which takes over from the present owner. Raises
    TakenOver if the state has changed from `seen`.
    """
    owner = await cluster.own(batch.query)
    try:
        if await cluster.read_state(batch.query) != seen:
            raise TakenOver(f"{batch}: the query is running and has written its state: stop it first")
        found = State(batch.run) if seen is None else seen
        await commit_decided(cluster, found.transactions, batch)
        taken_over = found.taken_over(batch.run, ())
        state = replace(taken_over, batch=batch.number, digest=None, may_differ=True, earlier=())
        await owner.write(state)
    except Superseded:
        raise TakenOver(f"{batch}: the query is starting: stop it first") from None
    finally:
        await owner.close()
    await _sweep(cluster, batch, state.former)
    return state


async def _state(cluster: Cluster[Any], batch: Batch) -> State | None:
    """Return the state of the query. A write without a writeId has no record under its own name before its decision:
    its state is then that of its run. If a record of another write is missing, which this run has taken over, a third
    run has removed it.
    """
    state = await cluster.read_state(batch.query)
    return State(batch.run) if state is None and batch.query == unnamed_query(batch.run) else state


async def _own_state(cluster: Cluster[Any], batch: Batch) -> State:
    """Return the state, which must belong to this run. Raises TakenOver."""
    state = await _state(cluster, batch)
    if state is None or state.run != batch.run:
        found = "was removed" if state is None else f"is that of run {short(state.run)}, batch {state.batch}"
        raise TakenOver(f"{batch}: the state {found}: another run of this query is active")
    return state


def batch_digest(messages: Sequence[TaskMessage]) -> Digest | None:
    """Return the digest of all rows of the batch; None if a task of an older release has sent no digest."""
    digests = [message.digest for message in messages]
    return None if None in digests else digest_sum(each for each in digests if each is not None)


def _check_same(state: State, batch: Batch, digest: Digest | None) -> None:
    """Raise BatchDiffers if the replay has other rows than the batch whose commit was decided."""
    if state.may_differ or state.digest is None or digest is None or digest == state.digest:
        return
    content = "other content" if digest.rows == state.digest.rows else f"{digest.rows} rows"
    reset = f"oncelog pipeline state reset {batch.query.name} --batch"
    raise BatchDiffers(
        f"{batch}: the batch is decided, with {state.digest.rows} rows, and its replay brings {content}; nothing of the"
        " replay was written. Either the query gives other rows each time (rand(), a table that changes), or another"
        f" load has its writeId: {reset} {batch.number} keeps the decided rows. Or the checkpoint lost its last"
        " entry (a power cut, a backup), and new rows came under the number of an old batch: start with a new "
        "checkpoint"
        f" {NEW_CHECKPOINT}, or {reset} {batch.number - 1} has the whole replay written, and rows that were written are"
        " there twice"
    )


def _check_repair(state: State, batch: Batch, written: Sequence[TaskTransaction], digest: Digest | None) -> None:
    """Raise NotRepairable unless the replay has exactly the lost rows for the lost partitions."""
    brought = {each.partition: each.digest for each in written}
    are_same = all(
        known is None or brought[partition] is None or brought[partition] == known
        for partition, known in state.lost.items()
        if partition in brought
    )
    is_whole = state.digest is None or digest is None or digest == state.digest
    if brought.keys() == state.lost.keys() and are_same and is_whole:
        return
    reason = "other rows" if brought.keys() == state.lost.keys() else f"rows of {sorted(brought)}"
    raise NotRepairable(
        f"{batch}: of a decided batch the partitions {sorted(state.lost)} were aborted by their timeout and must be"
        f" written again, but the replay brings {reason}: restart the query as it was, with the same input, code and"
        f" partitioning. Or give them up: oncelog pipeline state reset {batch.query.name} --batch {batch.number}"
    )


async def _keep_open(
    cluster: Cluster[Any], batch: Batch, written: Sequence[TaskTransaction]
) -> Sequence[TaskTransaction]:
    """Remove the timeout from the transactions, so that they remain open however long the driver is down. Returns the
    transactions as the record of the decision to commit must name them: without a timeout where the cluster has removed
    the timeout. Raises NotAllOpen.
    """
    transactions = [each.written.transaction for each in written]
    are_open = await cluster.are_open(transactions, LEAST_TIME_LEFT)
    _check_open(batch, transactions, are_open)
    if batch.query.is_unnamed:
        # a write without a writeId has no later run, which would abort transactions without a timeout if this driver
        # died before its decision
        return written
    kept = await cluster.keep(transactions)
    _check_open(batch, transactions, [each is not None for each in kept])
    return [
        replace(each, written=each.written._replace(transaction=transaction))
        for each, transaction in zip(written, kept, strict=True)
        if transaction is not None
    ]


def _check_open(batch: Batch, transactions: Sequence[PreparedTransaction], are_open: Sequence[bool]) -> None:
    """Raise NotAllOpen unless all transactions of the batch are open."""
    late = [each for each, is_open in zip(transactions, are_open, strict=True) if not is_open]
    if late:
        raise NotAllOpen(
            f"{batch}: {len(late)} of {len(transactions)} transactions, {late[0].transactional_id} among them, are"
            " aborted or have less than a third of their time left, so nothing of the batch was written: make batches"
            " smaller (maxOffsetsPerTrigger), kafka.transaction.timeout.ms longer, or choose"
            " delivery=exactly-once-per-task"
        )


async def _decide(cluster: Cluster[Any], seen: State, batch: Batch, state: State) -> Owner:
    """Write the query's state with the decision to commit a batch, and return the owner that has written it, which the
    caller must close. Raises TooManyTasks if the state is too large, and TakenOver if another run has written the state
    or becomes its owner.
    """
    if len(state.as_json()) > MAX_BYTES:
        raise TooManyTasks(
            f"{batch}: {len(state.transactions)} tasks have written, and the decision about all of them must fit one"
            f" record of {MAX_BYTES:,} bytes, so nothing of the batch was written: let fewer tasks write (coalesce), or"
            " choose delivery=exactly-once-per-task"
        )
    owner: Owner = await cluster.own(batch.query)
    try:
        # read the state again as the owner, because only an owner is certain to read the latest state
        if await _state(cluster, batch) != seen:
            raise TakenOver(f"{batch}: another run has taken over")
        await owner.write(state)
    except BaseException as error:
        await owner.close()
        if isinstance(error, Superseded):
            raise TakenOver(f"{batch}: another run takes over") from None
        raise
    return owner


async def _end(cluster: Cluster[Any], state: State, batch: Batch) -> None:
    """Commit the transactions that the decision names. Raises DecidedButAborted if one of them was aborted."""
    lost = await commit_decided(cluster, state.transactions, batch)
    if lost:
        raise DecidedButAborted(
            f"{batch}: the transactions of the partitions {sorted(lost)} were aborted between the decision and their"
            " end; the next start of the query writes them again"
        )


async def commit_decided(
    cluster: Cluster[Any], transactions: Sequence[TaskTransaction], batch: Batch
) -> frozenset[int]:
    """Commit the transactions that the decision names. Return the partitions whose transactions had been aborted before
    they could be
    committed.

    If the coordinator has a newer transaction of the same id, from the next batch or a late attempt, it no longer knows
    whether the decided transaction was committed or aborted. In that case the driver checks whether the transaction's
    first record is visible to read_committed readers, which means that the transaction was committed.
    """
    have_ended = await cluster.end([each.written.transaction for each in transactions], commits=True)
    doubtful = [each for each, has in zip(transactions, have_ended, strict=True) if not has]
    are_seen = await cluster.are_visible([each.written.first for each in doubtful]) if doubtful else []
    lost = frozenset(each.partition for each, is_seen in zip(doubtful, are_seen, strict=True) if not is_seen)
    if lost:
        logger.warning("%s: decided, then aborted by the coordinator: partitions %s", batch, sorted(lost))
    return lost


async def _sweep(cluster: Cluster[Any], batch: Batch, runs: Iterable[str]) -> None:
    """Abort the open transactions of the tasks of these runs. Transactions of other runs are left open, because a newer
    run may just have decided to commit them.
    """
    over = frozenset(runs)
    left = [each for each in await cluster.ongoing(batch.query) if batch.query.run_of(each) in over]
    if left:
        await cluster.fence(left)
