"""Translates errors of the store into errors for clients."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from oncelog_broker.controller.reconciler import Unsettled
from oncelog_broker.controller.writer import Deposed
from oncelog_broker.metadata import paths
from oncelog_broker.metadata.stores.store import MetadataError, RequestTooLarge, StoreUnavailable
from oncelog_protocol.errors import ErrorCode, KafkaError


@contextmanager
def translated(subject: str) -> Iterator[None]:
    """Context manager that translates errors that the store raises inside the block into KafkaErrors: NOT_CONTROLLER,
    POLICY_VIOLATION if the write is too large, and REQUEST_TIMED_OUT if it is unknown whether `subject` was changed."""
    try:
        yield
    except (StoreUnavailable, Unsettled) as error:
        message = f"The metadata store is unavailable; whether '{subject}' was changed is not known: {error}"
        raise KafkaError(ErrorCode.REQUEST_TIMED_OUT, message) from error
    except Deposed as error:
        raise not_controller() from error
    except RequestTooLarge as error:
        message = f"'{subject}' was not changed, it does not fit into one write to the metadata store: {error}"
        raise KafkaError(ErrorCode.POLICY_VIOLATION, message) from error
    except MetadataError as error:
        raise_if_fenced(error)
        raise


def raise_if_fenced(error: MetadataError) -> None:
    if error.path == paths.CONTROLLER_EPOCH:
        raise not_controller() from error


def not_controller() -> KafkaError:
    return KafkaError(ErrorCode.NOT_CONTROLLER, "Another broker has become controller.")


def unknown_topic(name: str) -> KafkaError:
    return KafkaError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"Topic '{name}' does not exist.")


def too_contended(subject: str, attempts: int) -> KafkaError:
    return KafkaError(ErrorCode.REQUEST_TIMED_OUT, f"'{subject}' was changed by others in each of {attempts} attempts.")
