"""`oncelog dump`: prints the contents of log files, indexes, snapshots and checkpoints. Faults are printed on standard
error and make the exit code 1.
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING

import click

from oncelog.cli.output import tell
from oncelog.cli.running import silenced
from oncelog.escaping import visible

if TYPE_CHECKING:
    from oncelog_broker.dump.files import DumpOptions


@click.command()
@click.argument("paths", nargs=-1, type=click.Path(exists=True, path_type=Path), metavar="FILE...")
@click.option(
    "--files",
    "more_paths",
    metavar="FILE,...",
    help="The files, separated by commas as in Kafka's tool, instead of arguments.",
)
@click.option("--deep-iteration", is_flag=True, help="Show each record, without its contents.")
@click.option("--print-data-log", is_flag=True, help="Show each record with key and value.")
@click.option("--offsets-decoder", is_flag=True, help="Decode each record as a record of __consumer_offsets.")
@click.option("--transaction-log-decoder", is_flag=True, help="Decode each record as a record of __transaction_state.")
@click.option(
    "--share-group-state-decoder", is_flag=True, help="Decode each record as a record of __share_group_state."
)
@click.option("--verify-index-only", is_flag=True, help="Check indexes against their logs, and show only errors.")
@click.option(
    "--index-sanity-check", is_flag=True, help="Check indexes without their logs, as a broker does at its start."
)
@click.option("--max-bytes", type=click.IntRange(min=0), help="Show only the batches within the first bytes of a log.")
@click.option("--json", "is_json", is_flag=True, help="Print lines of JSON.")
def dump(
    paths: tuple[Path, ...],
    more_paths: str | None,
    deep_iteration: bool,
    print_data_log: bool,
    offsets_decoder: bool,
    transaction_log_decoder: bool,
    share_group_state_decoder: bool,
    verify_index_only: bool,
    index_sanity_check: bool,
    max_bytes: int | None,
    is_json: bool,
) -> None:
    """Show the contents of the files of a log.

    FILE is a .log, .index, .timeindex, .txnindex or .snapshot file, a checkpoint, meta.properties, partition.metadata,
    or a directory, which means all such files in the directory and its subdirectories. The lines have the format of
    Kafka's kafka-dump-log.sh. Each corruption is reported on standard error with its position in the file, and makes
    the exit code 1.

    --print-data-log decodes the records of the internal topics, which are recognized by the name of the directory. For
    a file in another directory, use one of the decoder options.
    """
    from oncelog_broker.dump.decoders import Decoder
    from oncelog_broker.dump.files import DumpOptions, known_files

    paths += _split(more_paths)
    if not paths:
        raise click.UsageError("no FILE is named")
    named = {
        Decoder.OFFSETS: offsets_decoder,
        Decoder.TRANSACTION_LOG: transaction_log_decoder,
        Decoder.SHARE_GROUP_STATE: share_group_state_decoder,
    }
    decoders = [decoder for decoder, is_named in named.items() if is_named]
    if len(decoders) > 1:
        raise click.UsageError("the decoder options exclude each other")
    decoder = decoders[0] if decoders else None
    options = DumpOptions(
        is_deep=deep_iteration,
        with_contents=print_data_log or decoder is not None,
        decoder=decoder,
        verify_index_only=verify_index_only,
        index_sanity_check=index_sanity_check,
        max_bytes=max_bytes,
    )
    is_sound = True
    try:
        for path in known_files(paths):
            is_sound &= _print_file(path, options, is_json=is_json)
        sys.stdout.flush()
    except BrokenPipeError:
        raise silenced() from None
    except OSError as error:
        raise click.FileError(str(error.filename), error.strerror) from error
    sys.exit(0 if is_sound else 1)


def _split(names: str | None) -> tuple[Path, ...]:
    """Return the paths of --files. Raises BadParameter if a path does not exist."""
    paths = tuple(Path(name) for name in (names or "").split(",") if name)
    for path in paths:
        if not path.exists():
            raise click.BadParameter(f"Path {str(path)!r} does not exist.", param_hint="--files")
    return paths


def _print_file(path: Path, options: DumpOptions, *, is_json: bool) -> bool:
    """Print the rows of one file; returns True if the file has no fault. Raises OSError if the file cannot be read or
    printed.
    """
    from oncelog_broker.dump.files import dump_file
    from oncelog_broker.dump.rows import Fault, Message, Notice, Row

    write = sys.stdout.write  # not click.echo, which flushes each line.
    shown = visible if sys.stdout.isatty() else str  # A pipe gets exactly the text of Kafka's tool.
    is_sound = True
    if not is_json:
        write(f"Dumping {path}\n")
    for item in dump_file(path, options):
        match item:
            case Row():
                write((item.as_json(str(path)) if is_json else shown(item.as_text())) + "\n")
            case Message(text):
                if not is_json:
                    write(shown(text) + "\n")
            case Notice(text):
                sys.stdout.flush()
                tell(f"{path}: {text}")
            case Fault():
                is_sound = False
                sys.stdout.flush()
                tell(f"oncelog: {path}: {item}")
    return is_sound
