"""Claims the controller role, and provides the fence: a version check in every later write of the controller."""

from __future__ import annotations

import logging

from oncelog_broker.metadata import paths
from oncelog_broker.metadata.model.faults import tell_fault
from oncelog_broker.metadata.model.payloads import (
    ControllerRegistration,
    MalformedPayload,
    encode_controller,
    encode_controller_epoch,
    parse_controller_epoch,
)
from oncelog_broker.metadata.stores.store import (
    BadVersion,
    Check,
    ConnectionLost,
    Create,
    MetadataStore,
    NodeExists,
    Operation,
    Set,
    Stat,
)
from oncelog_protocol.light_classes import dataclass

logger = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Controllership:
    """A successful claim of the controller role: this broker is the controller of this epoch until another broker
    claims the next epoch.
    """

    epoch: int
    epoch_version: int
    """Version of the epoch's node after the claim."""

    @property
    def fence(self) -> Check:
        """The first operation of each `multi` of the controller. This operation fails with BadVersion for the node
        CONTROLLER_EPOCH after another broker has become controller, however late the write arrives (KAFKA-6082)."""
        return Check(paths.CONTROLLER_EPOCH, self.epoch_version)


async def claim_controllership(store: MetadataStore, broker_id: int, now_ms: int) -> Controllership | None:
    """Become controller unless the cluster has a controller. One atomic write registers this broker as controller and
    raises the epoch.

    Returns None if another broker is controller, or has just become the controller. Raises StoreUnavailable if the
    outcome of the write is unknown; the caller must retry later.
    """
    existing = (await store.get_many([paths.CONTROLLER_EPOCH]))[0]
    registration = encode_controller(ControllerRegistration(broker_id, now_ms))
    raise_epoch: Operation
    if existing is None:
        claimed = Controllership(1, 0)
        raise_epoch = Create(paths.CONTROLLER_EPOCH, encode_controller_epoch(1))
    else:
        epoch = _epoch_in(store, *existing)
        claimed = Controllership(epoch + 1, existing[1].version + 1)
        raise_epoch = Set(paths.CONTROLLER_EPOCH, encode_controller_epoch(claimed.epoch), existing[1].version)
    try:
        await store.multi([Create(paths.CONTROLLER, registration, ephemeral=True), raise_epoch])
    except (NodeExists, BadVersion):
        # An earlier claim of this session, whose reply was lost, may have succeeded.
        return await own_controllership(store)
    except ConnectionLost:
        await store.sync()
        return await own_controllership(store)
    return claimed


async def own_controllership(store: MetadataStore) -> Controllership | None:
    """Return the claim of this broker's session according to the store, even if replies were lost; None if this broker
    is not the controller.

    The epoch is read before the registration. While this broker is registered as controller, no other broker raises the
    epoch. The epoch that was read therefore belongs to this broker's claim. An older epoch would do no harm, because
    every write with it fails. Raises StoreUnavailable.
    """
    epoch = (await store.get_many([paths.CONTROLLER_EPOCH]))[0]
    owner = await store.exists(paths.CONTROLLER)
    if epoch is None or owner is None or owner.ephemeral_owner != store.session_id:
        return None
    return Controllership(_epoch_in(store, *epoch), epoch[1].version)


def _epoch_in(store: MetadataStore, data: bytes, stat: Stat) -> int:
    """Return the controller epoch that the node contains. If the node cannot be parsed, the node's version is used as
    an upper bound of the epoch, because each claim raises the version and the epoch by one. An epoch that is too high
    does no harm, because only the node's version fences writes.
    """
    try:
        return parse_controller_epoch(data, paths.CONTROLLER_EPOCH)
    except MalformedPayload as error:
        tell_fault(logger, store, paths.CONTROLLER_EPOCH, str(error), f"epoch {stat.version + 1}")
        return stat.version + 1
