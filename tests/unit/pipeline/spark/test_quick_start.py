"""A Python worker acknowledges received TCP segments immediately, so that Spark sends the next part without delay."""

from __future__ import annotations

import array
import fcntl
import os
import pickle
import socket
import sys
import termios

import pytest

pytest.importorskip("pyspark")

from oncelog_pipeline.spark.data_source import OncelogDataSource
from oncelog_pipeline.spark.quick_start import acknowledge

pytestmark = pytest.mark.skipif(not sys.platform.startswith("linux"), reason="only Linux delays, and has an option")

PART = b"what to do"


def unacknowledged(sender: socket.socket) -> int:
    """Return the number of bytes that the sender keeps because they are not acknowledged yet."""
    found = array.array("i", [0])
    fcntl.ioctl(sender.fileno(), termios.TIOCOUTQ, found)
    return found[0]


@pytest.fixture
def jvm_and_worker() -> tuple[socket.socket, socket.socket]:
    """Return a connection on which the worker has responded before, so that the kernel delays its acknowledgements."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        jvm = socket.create_connection(server.getsockname())
        worker, _ = server.accept()
    for _ in range(20):
        jvm.sendall(PART)
        worker.recv(100)
        worker.sendall(PART)
        jvm.recv(100)
    return jvm, worker


def test_received_segments_are_acknowledged_at_once(jvm_and_worker: tuple[socket.socket, socket.socket]) -> None:
    jvm, worker = jvm_and_worker
    with jvm, worker:
        for _ in range(5):  # each check comes before the kernel's delay ends
            jvm.sendall(PART)
            worker.recv(100)
            acknowledge()
            assert not unacknowledged(jvm)
            worker.sendall(PART)
            jvm.recv(100)


def test_other_files_and_sockets_are_left_alone() -> None:
    ends = socket.socketpair()
    reading, writing = os.pipe()
    acknowledge()
    ends[0].send(PART)
    assert ends[1].recv(100) == PART
    for each in (reading, writing, ends[0].detach(), ends[1].detach()):
        os.close(each)  # raises an error if the descriptor is closed already


@pytest.mark.parametrize("made", ["reader", "streamReader", "writer", "streamWriter"])
def test_an_unpickled_task_input_switches_quick_acknowledgement_on(made: str, monkeypatch: pytest.MonkeyPatch) -> None:
    from pyspark.sql.types import BinaryType, StructField, StructType

    if made.endswith("riter"):
        source = OncelogDataSource({"kafka.bootstrap.servers": "a:1", "topic": "t", "writeId": "w"})
        sent = getattr(source, made)(StructType([StructField("value", BinaryType())]), False)
    else:
        source = OncelogDataSource({"kafka.bootstrap.servers": "a:1", "subscribe": "t"})
        sent = getattr(source, made)(None)
    calls: list[None] = []
    monkeypatch.setattr("oncelog_pipeline.spark.quick_start.acknowledge", lambda: calls.append(None))
    pickled = pickle.dumps(sent)
    assert not calls
    assert pickle.loads(pickled)._options == sent._options
    assert len(calls) == 1
