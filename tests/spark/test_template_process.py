"""Tests the launcher `oncelog-spark-python`: for Spark the process behaves as Python would, but most of its imports are
already done.
"""

from __future__ import annotations

import errno
import os
import select
import signal
import socket
import subprocess
import sys
import zipfile
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path
from typing import Any

import numpy
import psutil
import pytest
from streams import committed_values, create

from oncelog_pipeline.arrow.without_pandas import FAST_LISTS
from oncelog_pipeline.spark import template_process
from oncelog_pipeline.spark.environment import LAUNCHER, WORKER_PYTHON, set_environment, worker_python
from oncelog_pipeline.spark.template_process import TemplateProcess

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="nothing is forked here")

SECONDS = 120
SHOWS = """
import sys
is_warm = "pyspark.worker" in sys.modules
import os
print(is_warm, os.getppid(), __name__, sys.argv[1:], os.environ.get("TOLD"), os.getcwd(), sys.stdin.read(), flush=True)
print("an error", file=sys.stderr)
sys.exit(7)
"""
RAISES = "raise OSError('of the program')\n"
WAITS = """
import sys, time
print("waiting", "pyspark.worker" in sys.modules, flush=True)
time.sleep(600)
"""
KILLED = "import os, signal\nos.kill(os.getpid(), signal.SIGKILL)\n"
ENDS = """
import atexit, sys, threading, time
atexit.register(print, "at exit")
threading.Thread(target=lambda: (time.sleep(0.2), print("a thread"))).start()
sys.exit("a reason")
"""
PATHS = "import sys\nprint(sys.path)\n"
SEARCHED = """
import importlib, sys
importlib.invalidate_caches()
print("pyspark.worker" in sys.modules, sys.path, list(sys.path_importer_cache))
"""
COLLECTS = "import gc\nprint(gc.get_freeze_count() > 10_000)\n"
PARENT = """
import subprocess, sys
print(subprocess.run([sys.argv[1], "-m", "program"], stdout=subprocess.PIPE, text=True).stdout, flush=True)
"""

TELLS_THE_TIME = """
import sys, time
print("pyspark.worker" in sys.modules, time.strftime("%Z %H", time.localtime(0)))
"""
TELLS_ITS_PARENT = """
import os, time
print(os.getppid(), flush=True)
time.sleep(600)
"""
HAS_THE_ADDRESS_TAKEN = """
import os, socket, subprocess, sys
started = open("/proc/self/stat").read().rpartition(")")[2].split()[19]
listener = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
listener.bind(f"\\0oncelog-spark-python-{os.getuid()}-{os.getpid()}-{started}")
listener.listen(0)
full = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
full.connect(listener.getsockname())
print(subprocess.run([sys.argv[1], "-m", "program"], stdout=subprocess.PIPE, text=True, stdin=0).stdout, flush=True)
"""


@pytest.fixture
def program(tmp_path: Path) -> Iterator[Path]:
    """Yield the path of a module named program, in the directory in which the tests start processes."""
    yield tmp_path / "program.py"


def run(program: Path, text: str, *arguments: str, **environment: str) -> subprocess.CompletedProcess[str]:
    program.write_text(text)
    return subprocess.run(
        [worker_python(), "-m", "program", *arguments],
        input="given",
        capture_output=True,
        text=True,
        cwd=program.parent,
        env={**os.environ, **environment},
        timeout=SECONDS,
        check=False,
    )


def test_the_launcher_is_what_spark_is_told_to_start(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv(WORKER_PYTHON, raising=False)
    set_environment()
    assert os.environ[WORKER_PYTHON] == str(Path(sys.executable).with_name(LAUNCHER))


def test_the_python_of_the_user_is_not_replaced(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(WORKER_PYTHON, "/another/python")
    set_environment()
    assert os.environ[WORKER_PYTHON] == "/another/python"


def test_the_running_python_is_used_without_a_launcher(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    elsewhere = tmp_path / "python"
    elsewhere.symlink_to(sys.executable)
    monkeypatch.setattr(sys, "executable", str(elsewhere))
    assert worker_python() == str(elsewhere)


def test_a_forked_process_is_what_python_would_be(program: Path) -> None:
    done = run(program, SHOWS, "a", "", TOLD="ü")
    is_warm, _, shown = done.stdout.split(maxsplit=2)
    assert is_warm == "True", done
    assert shown == f"__main__ ['a', ''] ü {program.parent} given\n"
    assert (done.stderr, done.returncode) == ("an error\n", 7)


def test_an_exception_ends_a_forked_process_as_it_ends_python(program: Path) -> None:
    """The exception is an OSError, a class of errors that the template process also handles for itself."""
    done = run(program, RAISES)
    assert done.returncode == 1
    assert done.stderr.splitlines()[-1] == "OSError: of the program"
    assert run(program, SHOWS).stdout.startswith("True")


def test_a_forked_process_runs_threads_and_exit_functions_at_its_end(program: Path) -> None:
    done = run(program, ENDS)
    assert (done.stdout, done.stderr, done.returncode) == ("a thread\nat exit\n", "a reason\n", 1)


@pytest.mark.parametrize(("code", "told"), [("", 0), ("None", 0), ("3", 3), ("-1", 255), ("True", 1)])
def test_a_forked_process_returns_its_exit_code(program: Path, code: str, told: int) -> None:
    assert run(program, f"import sys\nsys.exit({code})\n").returncode == told


def test_a_signal_that_ends_a_forked_process_is_reported(program: Path) -> None:
    assert run(program, KILLED).returncode == 128 + signal.SIGKILL


def test_all_processes_are_forked_from_one_template(program: Path) -> None:
    with ThreadPoolExecutor(4) as pool:
        done = list(pool.map(lambda _: run(program, SHOWS), range(4)))
    assert {each.stdout.split()[0] for each in done} == {"True"}
    assert len({each.stdout.split()[1] for each in done}) == 1


def test_collecting_garbage_passes_over_what_was_imported(program: Path) -> None:
    assert run(program, COLLECTS).stdout == "True\n"


@pytest.mark.parametrize("name", ["PYTHONHASHSEED", "OMP_NUM_THREADS", "LC_NUMERIC"])
def test_another_interpreter_is_not_forked(program: Path, name: str) -> None:
    assert run(program, SHOWS).stdout.startswith("True")
    assert run(program, SHOWS, **{name: "7"}).stdout.startswith("False")


def test_a_forked_process_has_the_time_zone_of_its_environment(program: Path) -> None:
    """A forked process must use its own TZ, although the C library has already read a time zone in the template
    process.
    """
    assert run(program, TELLS_THE_TIME, TZ="UTC").stdout == "True UTC 00\n"
    assert run(program, TELLS_THE_TIME, TZ="EAST-9").stdout == "True EAST 09\n"


def test_numpy_does_not_draw_the_same_numbers_in_each_process() -> None:
    """Forked processes must draw different random numbers, although each has a copy of numpy's generator in the
    template process.
    """
    numpy.random.seed(1)
    expected = numpy.random.random()
    numpy.random.seed(1)
    template_process.draw_anew()
    assert numpy.random.random() != expected


def test_an_environment_that_is_too_large_is_given_to_python_itself(program: Path) -> None:
    shown = run(program, SHOWS, TOLD="x" * 100_000, MORE="x" * 100_000).stdout
    assert shown.startswith("False")


def test_modules_of_the_environment_come_before_the_archive_of_pyspark(program: Path) -> None:
    import pyspark

    archive = Path(pyspark.__file__).with_name("python") / "lib" / "pyspark.zip"
    paths = run(program, PATHS, PYTHONPATH=os.pathsep.join([str(archive), "/of/the/user"])).stdout
    assert str(archive) not in paths
    assert "/of/the/user" in paths


def test_the_jar_of_spark_is_not_searched_for_modules(program: Path, tmp_path: Path) -> None:
    """Spark puts its own jar on PYTHONPATH, and reading its list of files takes 20 ms of CPU in each process."""
    jar = tmp_path / "spark-core_2.13-4.2.0.jar"
    with zipfile.ZipFile(jar, "w") as archive:
        archive.writestr("org/apache/spark/SparkContext.class", b"")
    program.write_text(SEARCHED)
    paths = os.pathsep.join([str(jar), "/of/the/user", os.environ.get("PYTHONPATH", "")])
    command = [sys.executable, "-c", PARENT, worker_python()]
    done = subprocess.run(
        command,
        stdout=subprocess.PIPE,
        text=True,
        cwd=program.parent,
        env=os.environ | {"PYTHONPATH": paths},
        timeout=SECONDS,
        check=True,
    )
    assert done.stdout.startswith("True"), "the process is not forked"
    assert str(jar) not in done.stdout
    assert "/of/the/user" in done.stdout


def test_ending_the_launcher_ends_its_process(program: Path) -> None:
    """A reader of the forked process's output sees the end of the output, because no other process keeps that pipe
    open.
    """
    program.write_text(WAITS)
    command = [worker_python(), "-m", "program"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, cwd=program.parent) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "waiting True\n"
        process.send_signal(signal.SIGKILL)
        assert process.stdout.read() == ""


def test_where_the_template_process_is_killed_its_processes_end_with_their_launchers(program: Path) -> None:
    """The OOM killer may kill the template process: Spark then sees that the launcher has ended, and starts another
    one.
    """
    program.write_text(TELLS_ITS_PARENT)
    command = [worker_python(), "-m", "program"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, cwd=program.parent) as process:
        assert process.stdout is not None
        os.kill(int(process.stdout.readline()), signal.SIGKILL)
        assert process.wait(SECONDS) == 1
        assert select.select([process.stdout], [], [], SECONDS)[0], "the forked process goes on"
        assert process.stdout.read() == ""
    assert run(program, SHOWS).stdout.startswith("True")


def test_an_address_without_server_causes_no_delay(program: Path) -> None:
    """Any user of the machine may listen at the address of the template process."""
    program.write_text(SHOWS)
    command = [sys.executable, "-c", HAS_THE_ADDRESS_TAKEN, worker_python()]
    done = subprocess.run(
        command, input="", stdout=subprocess.PIPE, text=True, cwd=program.parent, timeout=SECONDS, check=True
    )
    assert done.stdout.startswith("False")


def test_a_directory_that_is_gone_is_given_to_python_itself(tmp_path: Path) -> None:
    command = f"mkdir gone; cd gone; rmdir ../gone; exec {worker_python()} -m this"
    done = subprocess.run(["sh", "-c", command], cwd=tmp_path, capture_output=True, text=True, timeout=SECONDS)
    assert done.returncode == 0, done.stderr
    assert done.stdout.startswith("The Zen of Python")


@pytest.fixture
def template() -> Iterator[tuple[TemplateProcess, str]]:
    """A template process, which runs in a thread and has imported no module, and its address; a `cat` process stands
    for its JVM.
    """
    with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as listener:
        listener.bind("")
        listener.listen(8)
        with subprocess.Popen(["cat"], stdin=subprocess.PIPE) as jvm, ThreadPoolExecutor(1) as pool:
            template = TemplateProcess(listener, jvm.pid)
            serving = pool.submit(template.serve)
            yield template, listener.getsockname()
            jvm.kill()
            assert serving.result(SECONDS) is None


def ask(address: str) -> bytes:
    with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as control:
        control.settimeout(SECONDS)
        control.connect(address)
        message = [b"/", b"2", b"-m", b"program", *(b"%s=%s" % each for each in os.environb.items())]
        socket.send_fds(control, [b"\0".join(message)], [0, 1, 2])
        return control.recv(64)


def test_where_no_process_can_be_made_only_that_one_is_refused(
    template: tuple[TemplateProcess, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The template process must survive, because all other launchers depend on it."""

    def fails() -> int:
        raise BlockingIOError(errno.EAGAIN, "no process left")

    monkeypatch.setattr(os, "fork", fails)
    assert [ask(template[1]) for _ in range(2)] == [template_process.REFUSED] * 2


def test_launchers_beyond_the_limit_are_sent_away(
    template: tuple[TemplateProcess, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(template_process, "MAX_CONNECTIONS", 0)
    with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as control:
        control.settimeout(SECONDS)
        control.connect(template[1])
        assert control.recv(64) == b""


def test_the_number_of_a_closed_descriptor_does_not_have_it_wait_for_a_process() -> None:
    """An event was found before its descriptor was closed; after that, the number of the descriptor was given to
    another process.
    """
    with (
        socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as listener,
        subprocess.Popen(["cat"], stdin=subprocess.PIPE) as process,
    ):
        template = TemplateProcess(listener, os.getpid())
        template._processes[100], template._ends[101] = process.pid, 100
        template._ended(101)
        assert (template._processes, template._ends) == ({100: process.pid}, {101: 100})


def test_the_template_process_ends_with_its_jvm(program: Path) -> None:
    program.write_text("import os\nprint(os.getppid())\n")
    command = [sys.executable, "-c", PARENT, worker_python()]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, cwd=program.parent) as parent:
        assert parent.stdout is not None
        template = int(parent.stdout.readline())
        try:
            ends = os.pidfd_open(template)
        except ProcessLookupError:
            return  # this quickly
    try:
        assert select.select([ends], [], [], SECONDS)[0], f"process {template} goes on"
    finally:
        os.close(ends)


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can be somebody else")
def test_another_user_is_refused(program: Path) -> None:
    assert run(program, SHOWS).stdout.startswith("True")
    started = Path(f"/proc/{os.getpid()}/stat").read_text().rpartition(")")[2].split()[19]
    address = f"\0{LAUNCHER}-{os.getuid()}-{os.getpid()}-{started}"
    asked = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    asked.connect(address)  # the template process still accepts connections
    asked.close()
    pid = os.fork()
    if pid == 0:
        os.setuid(65534)
        with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as control:
            control.connect(address)
            try:
                socket.send_fds(control, [b"/\x002\x00-m\x00program"], [0, 1, 2])
                told = control.recv(64)
            except ConnectionError:
                told = b""
        os._exit(0 if told == b"" else 1)
    assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 0


def test_the_processes_of_a_session_are_forks_of_one(spark: Any) -> None:
    """The workers of tasks have imported modules in advance, even if Spark started a planner process first, whose
    environment has no OMP_NUM_THREADS.
    """
    spark.read.format("oncelog").options(**{"kafka.bootstrap.servers": "a:1", "subscribe": "t"}).load()

    def is_warm(batches: Iterator[Any]) -> Iterator[Any]:
        import sys

        import pyarrow as pa

        for batch in batches:
            yield pa.RecordBatch.from_pydict({"warm": ["pyspark_oncelog" in sys.modules] * batch.num_rows})

    assert [row.warm for row in spark.range(2).mapInArrow(is_warm, "warm boolean").collect()] == [True, True]
    jvm = str(spark.sparkContext._gateway.proc.pid)
    module = template_process.__name__
    every = list(psutil.process_iter(["cmdline", "ppid"]))
    parents = {
        each.pid: each.info["ppid"]
        for each in every
        if {module, jvm} <= set(each.info["cmdline"] or [])  # a forked process keeps the command line of its parent
    }
    assert len([pid for pid, parent in parents.items() if parent not in parents]) == 1


@pytest.mark.skipif(not FAST_LISTS, reason="pandas is imported for the digest of short values")
def test_the_workers_that_write_do_not_import_pandas(spark: Any, address: str, topic: str) -> None:
    """Importing pandas takes longer than a small task, and 30 MB of each worker."""
    create(address, topic)
    table = spark.range(4).selectExpr("cast(id as string) as key", "cast(id as string) as value")
    # Spark starts new workers for tasks that need another environment, and this setting is a variable in it.
    setting = "spark.sql.execution.pyspark.udf.simplifiedTraceback.enabled"
    before = maps_of_workers(spark)
    spark.conf.set(setting, "false")
    try:
        options = {"kafka.bootstrap.servers": address, "topic": topic}
        table.write.format("oncelog").options(**options).mode("append").save()
        written = {pid: maps for pid, maps in maps_of_workers(spark).items() if pid not in before}
    finally:
        spark.conf.unset(setting)
    assert written
    assert not [pid for pid, maps in written.items() if "/pandas/" in maps]
    assert sum(committed_values(address, topic).values()) == 4


def maps_of_workers(spark: Any) -> dict[int, str]:
    """Return the memory maps, with the names of loaded libraries, of the processes that the template process of this
    session has forked, by process id.
    """
    jvm = str(spark.sparkContext._gateway.proc.pid)
    found = {}
    for each in psutil.process_iter(["cmdline"]):
        if {template_process.__name__, jvm} <= set(each.info["cmdline"] or []):
            with suppress(OSError):  # the process has ended
                found[each.pid] = Path(f"/proc/{each.pid}/maps").read_text()
    return found


def test_a_program_that_is_no_module_is_run_by_python_itself() -> None:
    done = subprocess.run([worker_python(), "-c", "print(2 + 2)"], capture_output=True, timeout=SECONDS, check=True)
    assert done.stdout == b"4\n"


@pytest.mark.parametrize("message", [b"", b"/", b"/\x00x", b"/\x001\x00-m", b"/\x002\x00-m\x00program\x00no variable"])
def test_a_malformed_message_is_refused(message: bytes) -> None:
    assert template_process.read(message, [0, 1, 2]) is None


def test_a_message_without_streams_is_refused() -> None:
    assert template_process.read(b"/\x002\x00-m\x00program", [0, 1]) is None
    assert template_process.read(b"/\x002\x00-m\x00program", [0, 1, 2]) is not None
