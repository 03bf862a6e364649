"""The supervisor's side of the template process, which forks the workers."""

from __future__ import annotations

import asyncio
import json
import logging
import os
import signal
import socket
import sys
from collections import deque
from collections.abc import Sequence
from contextlib import suppress
from typing import Any, Final

from oncelog_broker.workers.template_process import MAX_MESSAGE_BYTES
from oncelog_broker.workers.worker_role import WorkerRole

COMMAND: Final = (sys.executable, "-P", "-m", "oncelog_broker.workers.template_process")
"""Option -P of Python, which excludes the current directory from imports, so that no file there can replace a module.
"""
CODE_SECONDS: Final = 1.0
"""Seconds within which the template process must report the exit code of an ended worker; if the template process has
died, the exit code stays unknown.
"""
FORK_SECONDS: Final = 60.0
"""Seconds within which the template process must start, if it is not running, and fork a worker."""
CLOSE_SECONDS: Final = 10.0
"""Seconds within which the template process must end after the supervisor has closed the connection to it."""

logger = logging.getLogger(__name__)


class ForkedWorker:
    """A forked worker process."""

    def __init__(self, pid: int, handle: int, stdin: int, stdout: asyncio.StreamReader) -> None:
        """`handle`: the pidfd of the process. `stdin` is the write end of the worker's standard input; when it is
        closed, the worker process ends. This object closes `handle` and `stdin`.
        """
        self.pid = pid
        self.stdout = stdout
        self._handle = handle
        self._stdin = stdin
        loop = asyncio.get_running_loop()
        self._ended: asyncio.Future[None] = loop.create_future()
        self.code: asyncio.Future[int | None] = loop.create_future()
        """The exit code of the worker; None if the exit code is not known."""
        loop.add_reader(handle, self._on_end)

    async def wait(self) -> int | None:
        """Wait until the worker process has ended. Returns the exit code of the process, negative if a signal killed
        the process; None if the exit code is not known.
        """
        await asyncio.shield(self._ended)
        try:
            return await asyncio.wait_for(asyncio.shield(self.code), CODE_SECONDS)
        except TimeoutError:
            return None

    def send_signal(self, number: signal.Signals) -> None:
        """Send a signal to the worker process, unless the process has ended."""
        if not self._ended.done():
            with suppress(ProcessLookupError):
                signal.pidfd_send_signal(self._handle, number)

    def _on_end(self) -> None:
        asyncio.get_running_loop().remove_reader(self._handle)
        os.close(self._handle)
        os.close(self._stdin)
        self._ended.set_result(None)


class Template:
    """Starts the template process when the first worker is forked, and again if it was killed."""

    def __init__(self) -> None:
        self._control: socket.socket | None = None
        self._process: asyncio.subprocess.Process | None = None
        self._forks: deque[asyncio.Future[tuple[int, int]]] = deque()
        """The fork requests that have no response yet; the response contains the process id and pidfd of the worker."""
        self._codes: dict[int, asyncio.Future[int | None]] = {}
        """Maps the process id of each worker that has not ended to the future of its exit code."""

    async def fork(self, arguments: Sequence[str], role: WorkerRole, store: socket.socket | None) -> ForkedWorker:
        """Fork a worker with these arguments of `oncelog`. `store`: the worker's end of the connection to the metadata
        store. Raises OSError, also if the template process hangs.
        """
        control = await self._started()
        loop = asyncio.get_running_loop()
        its_input, stdin = os.pipe()
        output, its_output = os.pipe()
        try:
            message = json.dumps({"arguments": [*arguments], "role": role.text}).encode()
            if len(message) > MAX_MESSAGE_BYTES:
                raise OSError(f"the settings of a worker have {len(message)} bytes, of at most {MAX_MESSAGE_BYTES}")
            attached = [its_input, its_output, *([] if store is None else [store.fileno()])]
            asked: asyncio.Future[tuple[int, int]] = loop.create_future()
            self._forks.append(asked)
            socket.send_fds(control, [message], attached)
            try:
                pid, handle = await asyncio.wait_for(asked, FORK_SECONDS)
            except TimeoutError:
                self._kill()
                if self._control is control:
                    self._on_end()
                raise OSError(
                    f"the template process has forked nothing in {FORK_SECONDS:g} s, and was killed"
                ) from None
        except BaseException:
            os.close(stdin)
            os.close(output)
            raise
        finally:
            os.close(its_input)
            os.close(its_output)
        reader = asyncio.StreamReader()
        await loop.connect_read_pipe(lambda: asyncio.StreamReaderProtocol(reader), os.fdopen(output, "rb"))
        worker = ForkedWorker(pid, handle, stdin, reader)
        code = self._codes.pop(pid, None)
        if code is None:
            self._codes[pid] = worker.code
        else:  # the worker has ended already, as the template process has reported
            worker.code.set_result(code.result())
        return worker

    async def close(self) -> None:
        """End the template process. The workers keep running."""
        if self._control is not None:
            self._on_end()
        if self._process is not None:
            try:
                await asyncio.wait_for(self._process.wait(), CLOSE_SECONDS)
            except TimeoutError:
                self._kill()
                await self._process.wait()

    def _kill(self) -> None:
        """Kill a template process that hangs; the next fork starts another one."""
        if self._process is not None and self._process.returncode is None:
            self._process.kill()

    async def _started(self) -> socket.socket:
        """Return the connection to the template process, which is started if it is not running."""
        if self._control is None:
            ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
            self._control = ours
            asyncio.get_running_loop().add_reader(ours, self._on_message)
            with theirs:
                self._process = await asyncio.create_subprocess_exec(
                    *COMMAND,
                    str(theirs.fileno()),
                    stdin=asyncio.subprocess.DEVNULL,
                    stdout=asyncio.subprocess.DEVNULL,
                    pass_fds=[theirs.fileno()],
                    start_new_session=True,  # Ctrl-C in a terminal must reach only the supervisor
                )
        return self._control

    def _on_message(self) -> None:
        assert self._control is not None
        try:
            message, descriptors, _, _ = socket.recv_fds(self._control, MAX_MESSAGE_BYTES, 1, socket.MSG_DONTWAIT)
        except BlockingIOError:
            return
        except OSError:
            message, descriptors = b"", []
        if not message:
            logger.warning("the template process of the workers has ended; the next worker starts another one")
            self._on_end()
            return
        fields: dict[str, Any] = json.loads(message)
        if "ended" in fields:
            code = self._codes.pop(fields["ended"], None)
            if code is None:  # the worker may have ended before the response to its fork request was read
                self._codes[fields["ended"]] = code = asyncio.get_running_loop().create_future()
            if not code.done():
                code.set_result(fields["code"])
            return
        asked = self._forks.popleft()
        if "error" in fields:
            asked.set_exception(OSError(f"a worker cannot be forked: {fields['error']}"))
        else:
            asked.set_result((fields["pid"], descriptors[0]))

    def _on_end(self) -> None:
        control, self._control = self._control, None
        if control is not None:
            asyncio.get_running_loop().remove_reader(control)
            control.close()
        forks, self._forks = self._forks, deque()
        for asked in forks:
            if not asked.done():
                asked.set_exception(OSError("the template process of the workers ended"))
        self._codes.clear()
