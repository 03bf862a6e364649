"""`oncelog brokers`: lists the brokers and their load, removes all replicas from a broker, or spreads the load
evenly."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Collection, Mapping
from typing import TYPE_CHECKING, Any, Final

import click

from oncelog.cli.balance_plan import BrokerLoad, balanced, emptied, loads
from oncelog.cli.cluster_state import ClusterState, read_state
from oncelog.cli.command_config import connection_settings
from oncelog.cli.move_progress import until_arrived
from oncelog.cli.options import bootstrap_option, output_option
from oncelog.cli.output import Column, count, say, show_rows, tell
from oncelog.cli.reassignment_throttle import clear_throttle, set_throttle, take_throttle_back, throttled_topics
from oncelog.cli.running import Failure, describe, run

if TYPE_CHECKING:
    from oncelog.admin import Admin
    from oncelog.cli.reassignment_plan import Assignment
    from oncelog.cluster import TopicPartition

    Planner = Callable[[ClusterState], Assignment]
    """A function that computes the target assignment of replicas from the state of the cluster. Raises ValueError,
    Failure.
    """

DEFAULT_THROTTLE: Final = 50_000_000
"""Bytes per second that each broker may send, and may receive, for moved replicas; most of the network is left to
clients.
"""
ROUNDS: Final = 5
"""Maximum number of times that the plan is computed, because topics may be created while partitions move."""

LIST_COLUMNS: Final = tuple(
    map(
        Column.headed,
        ("Broker", "Address", "Rack", "State", "Controller", "Leads", "Replicas", "Behind", "Bytes", "Free"),
    )
)
PLAN_COLUMNS: Final = tuple(
    map(
        Column.headed,
        ("Broker", "Replicas", "Replicas then", "Leads", "Leads then", "Bytes", "Bytes then"),
    )
)

execute_option: Final = click.option("--execute", is_flag=True, help="Move the partitions. Default: show the plan.")
throttle_option: Final = click.option(
    "--throttle",
    type=click.IntRange(min=0),
    default=DEFAULT_THROTTLE,
    show_default=True,
    metavar="BYTES",
    help="Bytes a second of each broker for the moves; 0: no limit.",
)


@click.group()
def brokers() -> None:
    """Show the brokers and their load, remove all replicas from a broker, and spread the load evenly.

    `decommission` and `rebalance` show their plan, and carry it out with --execute. The cluster stores the moves, so
    they continue without the command. If the command was interrupted, run the command again to continue, or cancel all
    moves with `oncelog reassign cancel --all`.
    """


@brokers.command(name="list")
@bootstrap_option
@output_option
def list_(bootstrap: str, output: str | None) -> None:
    """List the brokers, including brokers that are not running but are assigned replicas.

    Plain output: broker, address, rack, state (live, or away if it is not running), whether it is the controller, how
    many partitions it leads,
    replicas, replicas that are not in sync, bytes of its replicas, bytes that are free.
    """

    async def command() -> ClusterState:
        from oncelog.admin import Admin

        async with Admin(bootstrap, **connection_settings()) as admin:
            return await read_state(admin)

    show_rows(LIST_COLUMNS, _list_rows(run(command, bootstrap)), output)


def _list_rows(state: ClusterState) -> list[tuple[object, ...]]:
    rows: list[tuple[object, ...]] = []
    present = {each: partition.replicas for each, partition in state.partitions.items()}
    for node, load in loads(present, state.sizes, state.brokers).items():
        broker = state.brokers.get(node)
        led = sum(partition.leader == node for partition in state.partitions.values())
        place: tuple[object, ...] = ("-", None) if broker is None else (f"{broker.host}:{broker.port}", broker.rack)
        is_live = "away" if broker is None else "live"
        behind = state.replicas_behind(node)
        free = state.free_bytes(node)
        rows.append((node, *place, is_live, node == state.controller_id, led, load.replicas, behind, load.size, free))
    return rows


@brokers.command()
@click.argument("broker_id", metavar="ID", type=click.IntRange(min=0))
@bootstrap_option
@output_option
@execute_option
@throttle_option
def decommission(broker_id: int, bootstrap: str, output: str | None, execute: bool, throttle: int) -> None:
    """Move all replicas away from a broker, live or dead, so that it can be removed.

    Only replicas of this broker move; each replica goes to the least loaded broker in a rack that the partition lacks.
    The exit code is 1 while the broker still holds replicas.
    """

    known: set[int] = set()

    def plan(state: ClusterState) -> Assignment:
        # the cluster's metadata no longer lists a dead broker that has no replicas
        known.update(state.brokers.keys() | state.holders)
        if broker_id not in known:
            raise Failure(f"there is no broker {broker_id}: the brokers are {', '.join(map(str, sorted(known)))}")
        return emptied(state.assignment, state.racks, state.sizes, {broker_id})

    state = _carried_out(plan, bootstrap, output, execute=execute, throttle=throttle)
    if not execute:
        return
    left = [each for each, partition in state.partitions.items() if broker_id in partition.replicas]
    if left:
        raise Failure(
            f"broker {broker_id} still holds {count(len(left), 'replica')}, such as {min(left)}: run it again"
        )
    say(f"broker {broker_id} holds no replica any more. Left to do:")
    steps = [
        "take it out of the bootstrap servers of clients, and out of the targets of Prometheus",
        "delete its data directories before another broker uses its id",
    ]
    if broker_id in state.brokers:
        steps.insert(0, "stop it now, since new topics may get replicas on it: systemctl stop oncelog on its machine")
    _say_steps(steps)


@brokers.command()
@bootstrap_option
@output_option
@execute_option
@throttle_option
def rebalance(bootstrap: str, output: str | None, execute: bool, throttle: int) -> None:
    """Spread the load evenly over all live brokers: bytes, replicas and leaders.

    First, partitions that could span more racks are spread over more racks. After that, the largest suitable replicas
    move from the most loaded brokers to the least loaded brokers, until no two loads differ by more than a tenth of the
    average.
    """

    def plan(state: ClusterState) -> Assignment:
        if away := sorted(state.holders - state.brokers.keys()):
            names = ", ".join(map(str, away))
            raise Failure(
                f"broker {names} is away, and its replicas would be moved: start it, or let it go with "
                f"`oncelog brokers decommission {away[0]}`"
            )
        return balanced(state.assignment, state.racks, state.sizes)

    state = _carried_out(plan, bootstrap, output, execute=execute, throttle=throttle)
    if execute:
        behind = sum(state.replicas_behind(node) for node in state.brokers)
        say("the load is spread." + (" Left to do:" if behind else " Nothing is left to do."))
        _say_steps([f"wait for {count(behind, 'replica')} to be in sync: oncelog ping --in-sync"] if behind else [])


def _say_steps(steps: list[str]) -> None:
    for number, step in enumerate(steps, 1):
        say(f"{number}. {step}")


def _carried_out(plan: Planner, bootstrap: str, output: str | None, *, execute: bool, throttle: int) -> ClusterState:
    """Show the plan, and carry it out if `execute` is set; return the final state. Raises Failure."""

    async def command() -> ClusterState:
        from oncelog.admin import Admin

        async with Admin(bootstrap, **connection_settings()) as admin:
            state = await read_state(admin)
            target = _planned(plan, state)
            show_rows(PLAN_COLUMNS, _plan_rows(state, target), output)
            moves, size = _moves(state, target), _moved_bytes(state, target)
            tell(f"{count(len(moves), 'partition')} of {len(target)} would change, {size:,} bytes would move")
            if state.moving:
                tell(f"{count(len(state.moving), 'partition')} already on the way, which counts as done above")
            _check_room(state, target)
            if not execute:
                is_done = not moves and not state.moving
                tell("nothing has to move" if is_done else "nothing was changed: --execute carries this plan out")
                return state
            return await _interruptible(_until_done(admin, state, plan, throttle))

    return run(command, bootstrap)


def _planned(plan: Planner, state: ClusterState) -> Assignment:
    """Compute the plan. Raises Failure."""
    try:
        return plan(state)
    except ValueError as error:
        raise Failure(f"{error}. Add a broker, or give the topic fewer replicas: oncelog reassign generate") from error


def _moves(state: ClusterState, target: Assignment) -> Assignment:
    present = state.assignment
    return {each: replicas for each, replicas in target.items() if replicas != present[each]}


def _incoming(state: ClusterState, target: Assignment) -> dict[int, int]:
    """Return broker -> bytes of the replicas that the broker receives."""
    sizes, present = state.sizes, state.assignment
    incoming: dict[int, int] = {}
    for each, replicas in _moves(state, target).items():
        for node in set(replicas) - set(present[each]):
            incoming[node] = incoming.get(node, 0) + sizes.get(each, 0)
    return incoming


def _moved_bytes(state: ClusterState, target: Assignment) -> int:
    return sum(_incoming(state, target).values())


def _check_room(state: ClusterState, target: Assignment) -> None:
    """Raise Failure if a broker would receive more bytes than it has free."""
    for node, size in _incoming(state, target).items():
        free = state.free_bytes(node)
        if free is not None and size > free:
            raise Failure(
                f"broker {node} would get {size:,} bytes, and has room for {free:,}: enlarge its disk, add a broker, "
                "or shorten the retention of large topics"
            )


def _plan_rows(state: ClusterState, target: Assignment) -> list[tuple[object, ...]]:
    now = loads(state.assignment, state.sizes, state.brokers)
    then = loads(target, state.sizes, state.brokers)
    nothing = BrokerLoad(0, 0, 0)
    rows: list[tuple[object, ...]] = []
    for node in sorted(now.keys() | then.keys()):
        before, after = now.get(node, nothing), then.get(node, nothing)
        pairs = zip(before, after, strict=True)
        rows.append((node, *(value for pair in pairs for value in pair)))
    return rows


async def _interruptible(work: Awaitable[ClusterState]) -> ClusterState:
    """Await `work`; if the user interrupts the command, print which moves the cluster continues."""
    try:
        return await work
    except asyncio.CancelledError:
        tell("")
        tell("interrupted: the partitions go on moving. Run the command again to watch them and to finish, or cancel")
        tell("what is on the way with: oncelog reassign cancel --all")
        raise


async def _until_done(admin: Admin, state: ClusterState, plan: Planner, throttle: int) -> ClusterState:
    """Carry out the plan, and plan again until no replica has to move. Returns the final state. Raises KafkaError."""
    targets: Assignment = {}
    for _ in range(ROUNDS):
        moves = _moves(state, _planned(plan, state))
        if not moves and not state.moving:
            break
        if throttle:
            await set_throttle(admin, _throttled(state, moves), throttle)
        elif left := await throttled_topics(admin, state.topics):
            await clear_throttle(admin, left)  # remove the throttle of an earlier command that was interrupted
        if moves:
            await admin.alter_partition_reassignments(moves)
        under_way = {each: move.target for each, move in state.moving.items()} | moves
        targets |= under_way
        await until_arrived(admin, under_way.keys(), state.sizes)
        state = await read_state(admin, targets)
    topics = {each.topic for each in targets} | await throttled_topics(admin, state.topics)
    await take_throttle_back(admin, topics)
    await _elect_preferred(admin, targets.keys())
    return await read_state(admin, targets)


def _throttled(state: ClusterState, moves: Assignment) -> dict[TopicPartition, tuple[tuple[int, ...], tuple[int, ...]]]:
    """Return the present and future replicas of all moving partitions, including the moves of an earlier command."""
    partitions = state.partitions
    targets: Mapping[Any, tuple[int, ...]] = {each: move.target for each, move in state.moving.items()} | moves
    return {each: (partitions[each].replicas, target) for each, target in targets.items() if each in partitions}


async def _elect_preferred(admin: Admin, partitions: Collection[TopicPartition]) -> None:
    """Elect the preferred replicas as leaders. A partition whose election fails is reported, and the command does not
    fail.
    """
    from oncelog.errors import KafkaError
    from oncelog_protocol.elections import ElectionType

    if not partitions:
        return
    try:
        await admin.elect_leaders(ElectionType.PREFERRED, partitions)
    except KafkaError as error:
        tell(f"not every preferred replica leads yet ({describe(error, 'the cluster')}): oncelog leaders elect")
