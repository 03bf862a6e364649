"""Registers a broker in its cluster; the first broker also founds the cluster.

Founding is one `multi` (atomic write of several nodes), or several (`founding.py`). The last nodes written are the
cluster id and the store id, so a store without a cluster id has never been used. Only the founding of a cluster creates
topics from the log directories. In an existing cluster, a log directory without a topic in the store belongs to a
deleted topic (the broker died before it removed the files). Creating a topic from that directory would restore the
deleted topic.

A process registers again when its session was lost. The broker then checks that the store is still the same store.
Without this check, if the store had lost its data, the first broker to register again would found a new cluster.

Each registration also writes the broker's incarnation node, in the same `multi`. A controller that elects this broker
can therefore check, in the write of the election, that the broker is still the same incarnation. The incarnation node
also names the last registration before which the broker may have lost records from its logs; later registrations copy
that information.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import Callable, Sequence
from dataclasses import replace

from oncelog_broker.metadata import paths
from oncelog_broker.metadata.membership.endpoints import EndpointInUse, endpoint_conflict
from oncelog_broker.metadata.membership.founding import (
    MAX_CHUNK_BYTES,
    FoundLogs,
    FoundTopic,
    adoption,
    begin_founding,
    check_founder,
    size_of,
    without_existing,
    write_chunks,
)
from oncelog_broker.metadata.membership.store_identity import readable_store_identity
from oncelog_broker.metadata.model.faults import tell_fault
from oncelog_broker.metadata.model.payloads import (
    BrokerRegistration,
    Endpoint,
    Founding,
    Incarnation,
    MalformedPayload,
    StoreIdentity,
    encode_broker,
    encode_cluster_id,
    encode_founding,
    encode_incarnation,
    encode_store_identity,
    parse_cluster_id,
    parse_incarnation,
)
from oncelog_broker.metadata.stores.store import (
    BadVersion,
    Create,
    Delete,
    MetadataStore,
    NodeExists,
    NoNode,
    Operation,
    Set,
    StoreUnavailable,
)
from oncelog_broker.runtime.entropy import Entropy, random_uuid, system_entropy
from oncelog_protocol.light_classes import NamedTuple
from oncelog_protocol.uuids import uuid_to_string

__all__ = ["BrokerIdInUse", "FoundLogs", "FoundTopic", "Membership", "WrongStore", "register_broker"]

_log = logging.getLogger(__name__)


class BrokerIdInUse(Exception):
    """Another live broker is registered with this broker's id."""

    def __init__(self, broker_id: int) -> None:
        super().__init__(f"broker id {broker_id} is in use by another live broker: give each broker an id of its own")


class WrongStore(StoreUnavailable):
    """The store is not the store in which this process was registered before: it was emptied or replaced. The broker
    waits until the right store is available again, because the wrong store may be a temporary mistake.
    """


class Membership(NamedTuple):
    """A broker's membership in the cluster: the result of a registration."""

    cluster_id: str
    broker_epoch: int
    incarnation: int
    """The version of the broker's incarnation node."""
    founded: bool
    """Whether the store was new. If True, the topics found in the log directories were added to the store; if False,
    they were ignored.
    """
    store_id: str = ""


async def register_broker(
    store: MetadataStore,
    broker_id: int,
    registration: BrokerRegistration,
    found_logs: Callable[[], FoundLogs] = FoundLogs,
    entropy: Entropy = system_entropy,
    wait_seconds: float = 0.0,
    *,
    process: str = "",
    before: Membership | None = None,
) -> Membership:
    """Register this broker until its session ends, and found the cluster if it does not exist. Registration and
    founding are one write, unless the founding needs several writes (`founding.py`).

    `found_logs` is called only for a new store. If another session has registered this broker's id, this function waits
    up to `wait_seconds` for that session to end, because its process may have died. `process` is the nonce of this
    process. `before` is the membership of this process in an earlier session. Raises BrokerIdInUse, EndpointInUse,
    WrongStore, StoreUnavailable; the call may be repeated, because a registration of the same session is recognised.
    """
    path = paths.broker_id(broker_id)
    while True:
        await _wait_for_endpoints(store, broker_id, registration.endpoints, wait_seconds)
        try:
            membership = await _try_to_register(store, broker_id, registration, found_logs, entropy, process, before)
            return await _with_endpoints(store, broker_id, registration.endpoints, membership)
        except NodeExists as error:
            # If `error.path` is not `path`, another broker is founding the cluster at this moment: try again. If the
            # existing registration has disappeared since the failed write, `stat` is None: try again.
            stat = await store.exists(path) if error.path == path else None
            if stat is not None and stat.ephemeral_owner == store.session_id:
                membership = await _membership(store, broker_id, stat.czxid)
                return await _with_endpoints(store, broker_id, registration.endpoints, membership)
            if stat is not None and not await _is_gone_within(store, path, wait_seconds):
                raise BrokerIdInUse(broker_id) from error
        except BadVersion:
            pass  # try again, because another process with this broker's id has registered
        except NoNode as error:
            if error.path != paths.FOUNDING:
                raise
            # Another process with this broker's id has finished the founding that this process began.


async def _wait_for_endpoints(
    store: MetadataStore, broker_id: int, endpoints: Sequence[Endpoint], wait_seconds: float
) -> None:
    """Return when no other broker is registered with one of these addresses. Raises EndpointInUse if another broker is
    still registered after `wait_seconds`, and is therefore alive.
    """
    while (conflict := await endpoint_conflict(store, broker_id, endpoints)) is not None:
        if wait_seconds:
            _log.warning(
                "another broker is registered with an address of this one: waiting for its registration to end",
                extra={"broker": conflict.broker_id, "address": f"{conflict.host}:{conflict.port}"},
            )
        if not await _is_gone_within(store, conflict.path, wait_seconds):
            raise EndpointInUse(conflict)


async def _with_endpoints(
    store: MetadataStore, broker_id: int, endpoints: Sequence[Endpoint], membership: Membership
) -> Membership:
    """Return the new membership if no other broker registered one of the addresses earlier; otherwise delete the new
    registration. Raises EndpointInUse.
    """
    conflict = await endpoint_conflict(store, broker_id, endpoints, before=membership.broker_epoch)
    if conflict is None:
        return membership
    with contextlib.suppress(NoNode):  # nothing to delete, because the registration ended with its session
        await store.delete(paths.broker_id(broker_id))
    raise EndpointInUse(conflict)


async def _try_to_register(
    store: MetadataStore,
    broker_id: int,
    registration: BrokerRegistration,
    found_logs: Callable[[], FoundLogs],
    entropy: Entropy,
    process: str,
    before: Membership | None,
) -> Membership:
    """Register, and found the cluster if needed. Raises NodeExists or BadVersion if another process was faster."""
    path, incarnation_path = paths.broker_id(broker_id), paths.incarnation(broker_id)
    asked = [paths.CLUSTER_ID, paths.STORE_ID, paths.FOUNDING, incarnation_path, *paths.PERSISTENT]
    found_id, found_store, founding, incarnation, *found = await store.get_many(asked)
    cluster_id = None if found_id is None else parse_cluster_id(found_id[0], paths.CLUSTER_ID)
    store_id = "" if found_store is None else readable_store_identity(found_store[0]).id
    if before is not None:
        _check_is_as_before(before, cluster_id, store_id, -1 if incarnation is None else incarnation[1].version)
    parents = [Create(each) for each, node in zip(paths.PERSISTENT, found, strict=True) if node is None]
    is_founder, logs = cluster_id is None, FoundLogs()
    content: list[Create] = []
    founding_ends: list[Operation] = []
    if cluster_id is None:
        if founding is not None:
            check_founder(founding[0], broker_id)
        logs = found_logs()
        cluster_id = logs.cluster_id or uuid_to_string(random_uuid(entropy))
        content = await without_existing(store, list(adoption(logs, broker_id, entropy)))
        content.append(Create(paths.CLUSTER_ID, encode_cluster_id(cluster_id)))
        is_small = size_of(content) <= MAX_CHUNK_BYTES
        if founding is None and is_small and not logs.replaces_store:
            # Create and delete this node in the same write, so that the write fails if another broker is about to found
            # the cluster.
            data = encode_founding(Founding(broker_id, process))
            founding_ends = [Create(paths.FOUNDING, data), Delete(paths.FOUNDING)]
        else:
            version = await begin_founding(store, broker_id, process, parents)
            version = await write_chunks(store, content[:-1], broker_id, process, version)
            parents, content = [], content[-1:]
            founding_ends = [Delete(paths.FOUNDING, version)]
    if found_store is None:
        store_id = uuid_to_string(random_uuid(entropy))
        identity = StoreIdentity(store_id, logs.replaces_store if is_founder else "")
        content.append(Create(paths.STORE_ID, encode_store_identity(identity)))
    is_kept = registration.is_log_tail_kept
    said: Operation
    if incarnation is None:
        said = Create(incarnation_path, encode_incarnation(Incarnation(is_kept, process=process)))
    else:
        data, stat = incarnation
        registration = replace(registration, previous_epoch=stat.mzxid)
        unsure_since = _parsed_incarnation(store, data, incarnation_path).unsure_epoch(stat.mzxid)
        payload = encode_incarnation(Incarnation(is_kept, unsure_since, process))
        said = Set(incarnation_path, payload, stat.version)
    registers: list[Operation] = [said, Create(path, encode_broker(registration), ephemeral=True)]
    stats = await store.multi([*parents, *registers, *founding_ends, *content])
    counted, made = stats[len(parents)], stats[len(parents) + 1]
    assert counted is not None
    assert made is not None
    return Membership(cluster_id, made.czxid, counted.version, founded=is_founder, store_id=store_id)


async def check_store(store: MetadataStore, broker_id: int, before: Membership) -> None:
    """Check that the store is the store in which this process was registered, and not an earlier state of it, before
    the broker uses its contents. Without this check, topics that are missing in another store would be treated as
    deleted. Raises WrongStore, StoreUnavailable.
    """
    asked = [paths.CLUSTER_ID, paths.STORE_ID, paths.incarnation(broker_id)]
    found_id, found_store, incarnation = await store.get_many(asked)
    try:
        cluster_id = None if found_id is None else parse_cluster_id(found_id[0], paths.CLUSTER_ID)
    except MalformedPayload:
        cluster_id = before.cluster_id  # ignore the error, because comparing cluster id and incarnation is enough
    _check_is_as_before(
        before,
        cluster_id,
        "" if found_store is None else readable_store_identity(found_store[0]).id,
        -1 if incarnation is None else incarnation[1].version,
    )


def _check_is_as_before(before: Membership, cluster_id: str | None, store_id: str, incarnation: int) -> None:
    """Raises WrongStore if cluster id, store id or incarnation do not continue the earlier membership `before`."""
    if cluster_id is None:
        raise WrongStore(
            "", f"the store is empty: it no longer contains cluster {before.cluster_id}. Restore it; or restart "
                "this broker, which then names the setting that creates a new cluster",
        )  # fmt: skip
    if cluster_id != before.cluster_id or (before.store_id and store_id and store_id != before.store_id):
        raise WrongStore(
            "", f"the store now belongs to cluster {cluster_id}. Connect to the store of cluster "
                f"{before.cluster_id} again; or restart this broker, which then says how to continue",
        )  # fmt: skip
    if incarnation < before.incarnation:
        raise WrongStore(
            "", f"the store has an older state: it contains {incarnation + 1} registrations of this broker, of "
                f"{before.incarnation + 1}. Restore the newest state; or restart this broker, which then says how "
                "to continue",
        )  # fmt: skip


def _parsed_incarnation(store: MetadataStore, data: bytes, path: str) -> Incarnation:
    """Parse an incarnation. If the incarnation is unreadable, assume that the broker's logs may have lost their ends,
    because the node may have recorded such a loss.
    """
    try:
        return parse_incarnation(data, path)
    except MalformedPayload as error:
        tell_fault(_log, store, path, str(error), "the broker may lack records that it once had")
        return Incarnation(is_log_tail_kept=False)


async def _membership(store: MetadataStore, broker_id: int, broker_epoch: int) -> Membership:
    """Return the membership of a registration that this session has made, and whose response was lost."""
    cluster_id, _ = await store.get(paths.CLUSTER_ID)
    (store_id,) = await store.get_many([paths.STORE_ID])
    _, incarnation = await store.get(paths.incarnation(broker_id))
    return Membership(
        parse_cluster_id(cluster_id, paths.CLUSTER_ID),
        broker_epoch,
        incarnation.version,
        founded=False,
        store_id="" if store_id is None else readable_store_identity(store_id[0]).id,
    )


async def _is_gone_within(store: MetadataStore, path: str, seconds: float) -> bool:
    changed = asyncio.Event()
    unwatch = store.watch(path, lambda _: changed.set())
    try:
        async with asyncio.timeout(seconds):
            while await store.exists(path) is not None:
                await changed.wait()
                changed.clear()
    except TimeoutError:
        return False
    finally:
        unwatch()
    return True
