"""Compares ways to send 1 MB of a file that is in the page cache: `python bench/sending.py [--directory PATH] [--turns
N]`.

The ways run in turns A B B A. The program prints the CPU of the sending process per MB: the median, the lowest and the
highest of the turns. The receiver is a separate process on the loopback interface.
"""

from __future__ import annotations

import argparse
import mmap
import os
import socket
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from typing import Final

FILE_BYTES: Final = 64 << 20
PORTION_BYTES: Final = 1 << 20
RECEIVER: Final = """
import socket, sys
connection, scratch = socket.create_connection(("127.0.0.1", int(sys.argv[1]))), bytearray(1 << 20)
while connection.recv_into(scratch):
    pass
"""


def ways(connection: socket.socket, file: int) -> dict[str, Callable[[int], None]]:
    """Maps the name of each way to a function that sends the part of the file at a given position."""
    mapping = mmap.mmap(file, FILE_BYTES, access=mmap.ACCESS_READ)
    whole = memoryview(mapping)

    def kept(position: int) -> None:
        connection.sendall(whole[position : position + PORTION_BYTES])

    def given_back(position: int) -> None:
        kept(position)
        mapping.madvise(mmap.MADV_DONTNEED, position, PORTION_BYTES)

    def mapped_anew(position: int) -> None:
        with mmap.mmap(file, PORTION_BYTES, access=mmap.ACCESS_READ, offset=position) as portion:
            connection.sendall(portion)

    def sendfile(position: int) -> None:
        end = position + PORTION_BYTES
        while position < end:
            position += os.sendfile(connection.fileno(), file, position, end - position)

    def read(position: int) -> None:
        connection.sendall(os.pread(file, PORTION_BYTES, position))

    return {
        "a mapping that stays": kept,
        "a mapping whose pages are given back": given_back,
        "a mapping for each portion": mapped_anew,
        "sendfile": sendfile,
        "read and write": read,
    }


def main() -> None:
    arguments = argparse.ArgumentParser(description=__doc__)
    arguments.add_argument("--directory", default=None, help="where the file is made")
    arguments.add_argument("--turns", type=int, default=15)
    options = arguments.parse_args()
    with tempfile.TemporaryFile(dir=options.directory) as file, socket.create_server(("127.0.0.1", 0)) as server:
        file.write(os.urandom(PORTION_BYTES) * (FILE_BYTES // PORTION_BYTES))
        file.flush()
        with subprocess.Popen([sys.executable, "-c", RECEIVER, str(server.getsockname()[1])]):
            connection, _ = server.accept()
            with connection:
                compare(ways(connection, file.fileno()), options.turns)


def compare(found: dict[str, Callable[[int], None]], turns: int) -> None:
    spent: dict[str, list[float]] = {name: [] for name in found}
    for turn in range(turns):
        for name in found if turn % 2 else reversed(found):
            began = time.process_time()
            for position in range(0, FILE_BYTES, PORTION_BYTES):
                found[name](position)
            spent[name].append((time.process_time() - began) / FILE_BYTES * (1 << 20) * 1e6)
    for name, values in spent.items():
        print(f"{name:40} {statistics.median(values):6.0f} us/MB  ({min(values):.0f}-{max(values):.0f})")


if __name__ == "__main__":
    main()
