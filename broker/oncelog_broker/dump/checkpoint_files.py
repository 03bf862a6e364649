"""Dumps the small text files: a checkpoint becomes one row for each entry; meta.properties and partition.metadata
become one row each.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import BinaryIO, Final

from oncelog_broker.dump.rows import Fault, Item, Row, Value
from oncelog_broker.log.checkpoints import CheckpointCorrupt, parse_checkpoint

Parser = Callable[[list[str]], dict[str, Value]]

MAX_CHECKPOINT_BYTES: Final = 64 * 1024 * 1024
"""Maximum size in bytes of a checkpoint file, because the file is read into memory. A file with 100,000 partitions with
the longest names is far smaller.
"""


def dump_leader_epochs(file: BinaryIO, path: str) -> Iterator[Item]:
    def entry(fields: list[str]) -> dict[str, Value]:
        epoch, start_offset = map(int, fields)
        return {"epoch": epoch, "startOffset": start_offset}

    return _dump_checkpoint(file, path, "leader epoch", entry)


def dump_offset_checkpoint(file: BinaryIO, path: str) -> Iterator[Item]:
    def entry(fields: list[str]) -> dict[str, Value]:
        topic, partition, offset = fields
        return {"topic": topic, "partition": int(partition), "offset": int(offset)}

    return _dump_checkpoint(file, path, "offset checkpoint", entry)


def dump_properties(file: BinaryIO) -> Iterator[Item]:
    """Read meta.properties or partition.metadata, as one row. Both files have the format of Java properties:
    meta.properties with `=`, partition.metadata with `:`.
    """
    import javaproperties

    try:
        values: dict[str, Value] = dict(javaproperties.loads(_read(file).decode()))
        yield Row("properties", values)
    except ValueError as error:
        yield Fault(str(error))


def _dump_checkpoint(file: BinaryIO, path: str, kind: str, entry: Parser) -> Iterator[Item]:
    try:
        for fields in parse_checkpoint(path, _read(file), entry):
            yield Row(kind, fields)
    except CheckpointCorrupt as error:
        yield Fault(str(error).removeprefix(f"{path}, "))
    except ValueError as error:
        yield Fault(str(error))


def _read(file: BinaryIO) -> bytes:
    """Read an entire file. Raises ValueError if it is too large."""
    data = file.read(MAX_CHECKPOINT_BYTES + 1)
    if len(data) > MAX_CHECKPOINT_BYTES:
        raise ValueError(f"larger than {MAX_CHECKPOINT_BYTES} bytes")
    return data
