"""A broker whose responses are mutated, bent, late, repeated, cut or missing. A seed determines everything that the
broker does.

In a *mutated* response some bytes are changed. A *bent* response is well-formed but wrong: numbers are extreme, lists
are emptied or doubled, names and error codes are replaced.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Iterator
from dataclasses import fields, is_dataclass, replace
from functools import partial
from typing import Any, Final, get_args, get_origin, get_type_hints

from tests.support.fake_broker import FakeBroker
from tests.support.fake_transactions import HangUp

from oncelog_protocol.api import ApiKey, request_type, response_type
from oncelog_protocol.errors import ErrorCode

SPARED: Final = 0.3
"""The share of responses that stay intact, so that the client reaches its code for further responses."""
LATEST_S: Final = 12.0
HEADER_BYTES: Final = 8
"""Length of a response's size field and correlation id in bytes."""

NUMBERS: Final = (-1, 0, 1, 2, 3_000_000, 2**15 - 1, 2**31 - 1, 2**63 - 1, -(2**31), -(2**63))
TEXTS: Final = ("", "other", "nul\0", "x" * 300, "127.0.0.1")
NAMES: Final = {"group_id": "g", "transactional_id": "t", "error_message": "", "host": "127.0.0.1"}
FORMAL: Final = (
    ApiKey.CREATE_TOPICS,
    ApiKey.DELETE_TOPICS,
    ApiKey.DELETE_RECORDS,
    ApiKey.LIST_GROUPS,
    ApiKey.DESCRIBE_GROUPS,
    ApiKey.DELETE_GROUPS,
    ApiKey.OFFSET_COMMIT,
    ApiKey.OFFSET_FETCH,
    ApiKey.LIST_TRANSACTIONS,
    ApiKey.DESCRIBE_TRANSACTIONS,
    ApiKey.DESCRIBE_PRODUCERS,
    ApiKey.DESCRIBE_CONFIGS,
    ApiKey.INCREMENTAL_ALTER_CONFIGS,
)
"""Admin APIs that the fake broker does not implement and that get a minimal response here."""
CODES: Final = tuple(int(code) for code in ErrorCode)


class HostileBroker(FakeBroker):
    """Sends hostile responses as long as `is_hostile` is true."""

    def __init__(self, seed: int) -> None:
        super().__init__()
        self.rng = random.Random(seed)
        self.is_hostile = False
        for key in FORMAL:
            self.handlers[request_type(key)] = partial(_formal, response_type(key))

    def heal(self) -> None:
        """Send correct responses from now on. All connections are closed, because clients must discard the ApiVersions
        responses that they got over them.
        """
        self.is_hostile = False
        self.hang_up()

    async def _answer(self, frame: bytes) -> bytes | None:
        try:
            return await super()._answer(frame)
        except (IndexError, AttributeError, ValueError):
            raise HangUp from None  # the client uses a version that only a hostile ApiVersions response claimed

    def encoded(self, response: Any, key: ApiKey, version: int) -> bytes:
        if self.is_hostile and self.rng.random() < 0.4:
            try:
                return super().encoded(bent(self.rng, response), key, version)
            except ValueError:
                pass  # the bent response cannot be encoded, so the intact one is sent
        return super().encoded(response, key, version)

    async def reply(self, writer: asyncio.StreamWriter, frame: bytes) -> None:
        chance = self.rng.random()
        if not self.is_hostile or chance < SPARED:
            writer.write(frame)
        elif chance < 0.7:
            writer.write(mutated(self.rng, frame))
        elif chance < 0.8:
            await asyncio.sleep(self.rng.uniform(0, LATEST_S))
            writer.write(frame)
        elif chance < 0.87:
            writer.write(frame + frame)
        elif chance < 0.94:
            writer.write(frame[: self.rng.randrange(len(frame))])
            raise HangUp
        elif chance < 0.97:
            raise HangUp


def _formal(cls: Any, _: Any = None) -> Any:
    """Return a minimal valid response: each list has one element, there is no error, and names are those that the tests
    use.
    """
    hints = get_type_hints(cls, localns=vars(cls))
    return cls(**{field.name: _value(field.name, hints[field.name]) for field in fields(cls)})


def _value(name: str, kind: Any) -> Any:
    if get_origin(kind) is list:
        return [_value(name, get_args(kind)[0])]
    if get_args(kind):  # a type of the form X | None
        kind = next(each for each in get_args(kind) if each is not type(None))
        return None if "message" in name else _value(name, kind)
    if is_dataclass(kind):
        return _formal(kind)
    if kind is str:
        return NAMES.get(name, "topic")
    if kind is bytes:
        return bytes(16) if name == "topic_id" else b""
    return {bool: False, int: 0, float: 0.0}.get(kind, 0)


def mutated(rng: random.Random, frame: bytes) -> bytes:
    """Return the frame with some bytes changed, removed or added; its size field is usually correct."""
    data = bytearray(frame)
    for _ in range(rng.choice((1, 1, 2, 4))):
        if len(data) <= HEADER_BYTES:
            break
        at = rng.randrange(HEADER_BYTES, len(data))
        kind = rng.random()
        if kind < 0.4:
            data[at] = rng.choice((0, 1, 0x7F, 0x80, 0xFF, rng.randrange(256)))
        elif kind < 0.6:
            data[at : at + 4] = bytes([rng.choice((0, 0x7F, 0x80, 0xFF))]) * 4
        elif kind < 0.75:
            del data[at : at + rng.randint(1, 8)]
        elif kind < 0.9:
            data[at:at] = rng.randbytes(rng.randint(1, 8))
        else:
            del data[at:]
    if rng.random() < 0.95:
        data[:4] = (len(data) - 4).to_bytes(4, "big")
    return bytes(data)


def bent(rng: random.Random, response: Any) -> Any:
    """Return a copy of the response in which one to three fields have another value of the same type."""
    bent_one = _copy(response)
    places = list(_places(bent_one))
    for _ in range(rng.randint(1, 3)):
        node, name = rng.choice(places)
        setattr(node, name, _other(rng, name, getattr(node, name)))
    return bent_one


def _copy(value: Any) -> Any:
    if isinstance(value, list):
        return [_copy(each) for each in value]
    if is_dataclass(value) and not isinstance(value, type):
        return replace(value, **{field.name: _copy(getattr(value, field.name)) for field in fields(value)})
    return value


def _places(node: Any) -> Iterator[tuple[Any, str]]:
    for field in fields(node):
        yield node, field.name
        value = getattr(node, field.name)
        for each in value if isinstance(value, list) else [value]:
            if is_dataclass(each):
                yield from _places(each)


def _other(rng: random.Random, name: str, value: Any) -> Any:
    if isinstance(value, bool):
        return not value
    if name.endswith("error_code"):
        return rng.choice(CODES)
    if isinstance(value, int):
        return rng.choice((*NUMBERS, value + 1, value - 1))
    if isinstance(value, str):
        return rng.choice(TEXTS)
    if isinstance(value, bytes | bytearray | memoryview):
        return rng.choice((b"", bytes(value)[: len(value) // 2], mutated(rng, bytes(HEADER_BYTES) + bytes(value))))
    if isinstance(value, list) and value:
        return rng.choice(([], value + value, value[:-1], value[::-1], value * 50))
    return value
