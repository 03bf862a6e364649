"""Sends unknown tagged fields of two bytes each."""

from __future__ import annotations

import struct

from hostile.client import HostileClient
from hostile.scene import Scene
from oncelog_protocol.api import ApiKey
from oncelog_protocol.wire_writers import uvarint

EMPTY_TAG = b"\x05\x00"
FIXED_HEADER = struct.pack(">hhih", ApiKey.API_VERSIONS, 3, 1, -1)
NAME_AND_VERSION = b"\x02a\x02b"
NO_TAGS = b"\x00"


def _tags(megabytes: int) -> bytes:
    count = megabytes * (1 << 20) // len(EMPTY_TAG)
    return uvarint(count) + EMPTY_TAG * count


def _send(scene: Scene, body: bytes) -> str:
    return f"{len(body):,} bytes, {scene.answer_to(struct.pack('>i', len(body)) + body)}"


def _in_header(scene: Scene, _: None, megabytes: int) -> str:
    return _send(scene, FIXED_HEADER + _tags(megabytes) + NAME_AND_VERSION + NO_TAGS)


def _in_body(scene: Scene, _: None, megabytes: int) -> str:
    return _send(scene, FIXED_HEADER + NO_TAGS + NAME_AND_VERSION + _tags(megabytes))


CLIENTS = (
    HostileClient("tagged fields in the header", _in_header, size=20, small=4),
    HostileClient("tagged fields in the body", _in_body, size=20, small=4),
)
