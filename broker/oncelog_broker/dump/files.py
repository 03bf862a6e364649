"""Finds the kind of a file by its name; a directory stands for all files of known kinds in the directory and its
subdirectories."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO, Final

from oncelog_broker.dump.checkpoint_files import dump_leader_epochs, dump_offset_checkpoint, dump_properties
from oncelog_broker.dump.decoders import Decoder, decoder_of
from oncelog_broker.dump.index_files import LogBeside, check_sanity, dump_offset_index, dump_time_index
from oncelog_broker.dump.log_file import dump_log
from oncelog_broker.dump.producer_files import dump_snapshot, dump_transaction_index
from oncelog_broker.dump.rows import Fault, Item
from oncelog_broker.log.directories.meta_properties import META_PROPERTIES_FILE
from oncelog_broker.log.directories.partition_metadata import PARTITION_METADATA_FILE
from oncelog_broker.log.leader_epochs import LEADER_EPOCH_FILE

LOG_SUFFIX: Final = ".log"
INDEX_DUMPS: Final = {".index": dump_offset_index, ".timeindex": dump_time_index}
PRODUCER_DUMPS: Final = {".snapshot": dump_snapshot, ".txnindex": dump_transaction_index}
OFFSET_CHECKPOINT_SUFFIX: Final = "-offset-checkpoint"
PROPERTIES_FILES: Final = (META_PROPERTIES_FILE, PARTITION_METADATA_FILE)


@dataclass(frozen=True, slots=True)
class DumpOptions:
    """The options of a dump. `decoder` decodes the records; None means that the name of the directory determines the
    decoder. `max_bytes` limits the dumped part of a log file; None means no limit.
    """

    is_deep: bool = False
    with_contents: bool = False
    decoder: Decoder | None = None
    verify_index_only: bool = False
    index_sanity_check: bool = False
    max_bytes: int | None = None


def is_known(path: Path) -> bool:
    name = path.name
    is_text = name in (LEADER_EPOCH_FILE, *PROPERTIES_FILES) or name.endswith(OFFSET_CHECKPOINT_SUFFIX)
    return is_text or path.suffix in (LOG_SUFFIX, *INDEX_DUMPS, *PRODUCER_DUMPS)


def known_files(paths: tuple[Path, ...]) -> list[Path]:
    """Return `paths` with each directory replaced by its files of known kinds in the order of their names, then the
    files of its subdirectories. Raises OSError.
    """
    files: list[Path] = []
    for path in paths:
        if not path.is_dir():
            files.append(path)
            continue
        inside = sorted(path.iterdir())
        files += filter(is_known, inside)
        files += known_files(tuple(each for each in inside if each.is_dir() and not each.is_symlink()))
    return files


def dump_file(path: Path, options: DumpOptions) -> Iterator[Item]:
    """Yield the rows, notices and faults of a file. An unreadable or unknown file yields a fault instead of raising an
    error.
    """
    try:
        with path.open("rb") as file:
            yield from _dump(path, file, options)
    except OSError as error:
        yield Fault(error.strerror or str(error))


def _dump(path: Path, file: BinaryIO, options: DumpOptions) -> Iterator[Item]:
    """Yield the rows, notices and faults of an open file. Raises OSError."""
    size = path.stat().st_size
    if path.suffix == LOG_SUFFIX:
        return dump_log(
            file,
            size,
            base_offset=_base_offset(path),
            is_deep=options.is_deep or options.with_contents,
            with_contents=options.with_contents,
            decoder=options.decoder or decoder_of(path),
            max_bytes=options.max_bytes,
        )
    if path.suffix in INDEX_DUMPS:
        return _dump_index(path, file, size, options)
    if path.suffix in PRODUCER_DUMPS:
        return PRODUCER_DUMPS[path.suffix](file)
    if path.name.endswith(OFFSET_CHECKPOINT_SUFFIX):
        return dump_offset_checkpoint(file, str(path))
    if path.name == LEADER_EPOCH_FILE:
        return dump_leader_epochs(file, str(path))
    if path.name in PROPERTIES_FILES:
        return dump_properties(file)
    return iter(
        [Fault("not a file that dump knows: .log, .index, .timeindex, .txnindex, .snapshot, checkpoints, properties")]
    )


def _dump_index(path: Path, file: BinaryIO, size: int, options: DumpOptions) -> Iterator[Item]:
    """Yield the rows and faults of an index file. Raises OSError."""
    base_offset = _base_offset(path)
    if base_offset is None:
        yield Fault(f"the name of an index is the base offset of its segment, not {path.stem!r}")
        return
    dump = INDEX_DUMPS[path.suffix]
    if options.index_sanity_check:
        yield from check_sanity(dump(file, size, base_offset=base_offset, log=None), str(path))
        return
    log_path = path.with_suffix(LOG_SUFFIX)
    with ExitStack() as stack:
        log = None
        try:
            log_file = stack.enter_context(log_path.open("rb"))
            log = LogBeside(log_file, log_path.stat().st_size)
        except FileNotFoundError:
            yield Fault(f"cannot be checked: {log_path} is missing")
        yield from dump(file, size, base_offset=base_offset, log=log, verify_only=options.verify_index_only)


def _base_offset(path: Path) -> int | None:
    return int(path.stem) if path.stem.isascii() and path.stem.isdigit() else None
