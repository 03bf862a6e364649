"""File access: every file access of a log uses `Disk` and `File`.

Production code uses only these protocols, so that a simulated disk that loses, tears or refuses writes can replace
`RealDisk`. Errors are the operating system's OSError; the caller decides how to handle them. All paths are `str`.
"""

from __future__ import annotations

import errno
import mmap
import os
import shutil
import threading
import weakref
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from functools import partial
from typing import Final, Protocol, TypeVar

from oncelog_broker.runtime.descriptors import SPARES, descriptor_limit, divide, is_descriptor_limit
from oncelog_broker.runtime.file_lock import FileLock
from oncelog_broker.runtime.file_system_sync import watched_file_system
from oncelog_broker.runtime.mappings import MAPPINGS
from oncelog_broker.runtime.open_files import OPEN_FILES
from oncelog_broker.runtime.private_files import FILE_MODE, SECRET_MODE, make_private_directory
from oncelog_protocol.light_classes import NamedTuple

Buffer = bytes | bytearray | memoryview
T = TypeVar("T")

SMALL_READ_SIZE: Final = 128 * 1024
"""Reads of up to this many bytes are copied by pread, which costs less than the page faults of a mapping. A bad sector
is then reported as OSError; with a mapping, a bad sector would kill the process with SIGBUS. Larger reads return slices
of a mapping, without a copy.
"""

BOOT_ID_FILE: Final = "/proc/sys/kernel/random/boot_id"

SYNC_THREADS: Final = 16
"""The number of fsyncs that run at once. File systems with a journal commit several waiting fsyncs together, so that
many fsyncs take much less time than one after another.
"""

TEMPORARY_SUFFIX: Final = ".tmp"
"""Suffix of the file that `replace_file` writes before renaming it, as in Kafka."""


def is_out_of_space(error: BaseException | None) -> bool:
    """Whether a write was refused because the disk or the quota is full; no data has changed then, and the disk is not
    faulty.
    """
    return isinstance(error, OSError) and error.errno in (errno.ENOSPC, errno.EDQUOT)


def sync_path(disk: Disk, path: str) -> None:
    """Sync one file by its path. Raises OSError."""
    file = disk.open_briefly(path)
    try:
        file.sync()
    finally:
        file.close()


class FileClosed(OSError):
    """Raised by `File.sync` after `File.close`: the owner of the file closed it just before a worker thread called
    `sync`.
    """


class File(Protocol):
    """A file to which data is appended. `size` is the length of the intact part of the file; readers see nothing beyond
    it.
    """

    @property
    def path(self) -> str: ...

    @property
    def size(self) -> int: ...

    def append(self, *buffers: Buffer) -> int:
        """Write at the end of the file, in one system call; returns the position of the first byte.

        Raises OSError if not all bytes were written; the file is then truncated to its previous `size`.
        """

    def read(self, position: int, size: int) -> memoryview:
        """Read up to `size` bytes, fewer at the end of the file. Raises OSError."""

    def view(self, position: int, size: int) -> memoryview | None:
        """Read up to `size` bytes as a slice of a mapping; returns None if no mapping can be made. Raises OSError."""

    def truncate(self, size: int) -> None:
        """Truncate the file to `size` bytes. Views that were returned earlier remain readable. Raises OSError."""

    def sync(self) -> None:
        """Sync the file to disk (fsync). After an OSError, the unsynced bytes may be lost, and the success of a further
        call does not prove that they are on the disk. Raises FileClosed.
        """

    def close(self) -> None: ...


class Lock(Protocol):
    """A lock on a directory that this process has acquired."""

    def release(self) -> None: ...


class FileStamp(NamedTuple):
    """Identifies one state of a file or directory: each change of the content, or of the names in the directory,
    changes the stamp. A copy has another stamp, too. The stamp has the same value again if a power cut undoes the
    change.
    """

    inode: int
    changed_ns: int
    """The time of the last change (ctime), in ns by the wall clock. Unlike the time of the last write (mtime), no
    program can set it.
    """
    size: int


class FileSystemSync(Protocol):
    """Syncs an entire file system, for a caller that has written very many files."""

    def sync(self) -> None:
        """Sync everything that was written to the file system before this call. Raises OSError if any write to the file
        system has failed since the object was created, because the system does not tell whose write failed.
        """

    def close(self) -> None: ...


class Disk(Protocol):
    """The file system calls that the broker makes. All methods raise OSError."""

    def open(self, path: str, *, create: bool = False) -> File:
        """Open a file for reading and appending; with `create`, a missing file is created. Raises FileNotFoundError."""

    def open_briefly(self, path: str, *, create: bool = False) -> File:
        """Open a file that the caller closes soon. If no file descriptor is left, this method uses a reserved
        descriptor.
        """

    def list_directory(self, path: str) -> list[str]:
        """Return the names in a directory, sorted."""

    def make_directories(self, path: str) -> bool:
        """Create a directory and its missing parents; returns False if the directory exists."""

    def exists(self, path: str) -> bool: ...

    def is_directory(self, path: str) -> bool: ...

    def size(self, path: str) -> int: ...

    def room(self, path: str) -> tuple[int, int]:
        """Return the (total, available) bytes of the file system that contains `path`."""

    def stamp(self, path: str) -> FileStamp:
        """Return the stamp of a file or directory. The stamps of `path` are reliable if `watch_file_system` supports
        its file system. Raises FileNotFoundError.
        """

    def modified_ms(self, path: str) -> int:
        """Return when the file was last written, as wall time in ms since the epoch."""

    def rename(self, source: str, target: str) -> None:
        """Rename a file or directory atomically, replacing `target`."""

    def remove(self, path: str) -> None:
        """Remove a file; a missing file is no error."""

    def remove_tree(self, path: str) -> None: ...

    def sync_directory(self, path: str) -> None:
        """Sync a directory, so that created, renamed and removed names in it survive a power failure."""

    def watch_file_system(self, path: str) -> FileSystemSync | None:
        """Return an object that syncs the file system that contains `path`; None if the system cannot do this, or does
        not report all failed writes. This method raises no errors.
        """

    def run_syncs(self, syncs: Sequence[Callable[[], None]]) -> None:
        """Run functions that only wait for the disk, several of them at once if the disk profits from this. The
        functions handle their errors themselves.
        """

    def read_file(self, path: str) -> bytes: ...

    def replace_file(self, path: str, data: bytes, *, is_durable: bool = True, private: bool = False) -> None:
        """Replace the content of a small file atomically: after a crash, the file has the old content or the new.

        Without `is_durable`, the call does not wait for the disk. After a kill, the file then has the old content or
        the new; after a power failure it may have any content, until file and directory are synced. If `private` is
        True, only the file's owner may read it.
        """

    def replace_files(self, contents: Mapping[str, bytes]) -> None:
        """Replace the contents of many files atomically: all files are written before the first sync, so that the file
        system commits its journal only once. If this method raises, each file has either the old content or the new
        content.
        """

    def lock(self, path: str) -> Lock:
        """Lock the file `path`, which is created if it does not exist. Raises LockHeld."""

    def boot_id(self) -> str:
        """Return an id of the machine's present boot. If the id has not changed since data was written, no power cut
        can have lost the data. The id is "" if the system does not provide it; two boots then cannot be distinguished.
        This method raises no errors.
        """

    def divide_descriptors(self, max_connections: int) -> int:
        """Set how many file descriptors files and mappings may use. Returns the number of descriptors that remain for
        connections."""


class RealFile:
    """A `File` whose descriptor is closed while the file is idle and other files need descriptors (`open_files`).

    BEWARE OF `read` AND `view`: a large read returns a slice of a mapping of the file. If the file were truncated below
    that slice while the slice is in use, for example in a fetch response that waits for a slow client, reading the
    slice would kill the process (SIGBUS). Therefore only `truncate` removes bytes that were readable. If slices of a
    mapping are in use, `truncate` does not change the old file, but replaces it by a new file with a copy of the
    remaining bytes. Unlinking the file is harmless, because a mapping keeps its inode.
    """

    __slots__ = ("_fd", "_guard", "_is_closed", "_map", "_older_maps", "_syncing", "is_lent", "is_used", "path", "size")

    def __init__(self, path: str, *, create: bool) -> None:
        self.path = path
        self._guard = threading.Lock()
        """A thread holds this lock while it uses, opens or closes the descriptor. Without the lock, a thread could use
        the number of a descriptor that was closed meanwhile and now belongs to another file.
        """
        self._map: mmap.mmap | None = None
        self._older_maps: list[weakref.ref[mmap.mmap]] = []
        """Earlier mappings, which exist as long as slices of them are in use."""
        self._is_closed = False
        self._syncing = 0
        self.is_lent = False
        """Whether the file's descriptor was taken from the reserve (`SPARES`)."""
        self.is_used = True
        self._fd = _open_file(path, os.O_CREAT if create else 0)
        self.size = os.fstat(self._fd).st_size
        OPEN_FILES.add(self)

    def _descriptor(self) -> int:
        """Return the descriptor, which is opened again if the file was idle. The caller must hold `_guard`. Raises
        OSError.
        """
        self.is_used = True
        return self._fd if self._fd >= 0 else self._opened_again()

    def _opened_again(self) -> int:
        """Open the descriptor again. The caller must hold `_guard`. Raises OSError."""
        if self._is_closed:
            raise FileClosed(f"{self.path} is closed")
        self._fd = _open_file(self.path, 0)
        OPEN_FILES.add(self)
        return self._fd

    def append(self, *buffers: Buffer) -> int:
        # Use pwrite at `size` instead of O_APPEND. If a write fails, and the truncation below fails, too, the next
        # append overwrites the bytes of the failed write, so that these bytes cannot remain between two complete
        # writes.
        position = self.size
        self.is_used = True
        with self._guard:
            descriptor = self._fd if self._fd >= 0 else self._opened_again()
            try:
                if len(buffers) == 1:
                    wanted = len(buffers[0])
                    written = os.pwrite(descriptor, buffers[0], position)
                else:
                    wanted = sum(map(len, buffers))
                    written = os.pwritev(descriptor, buffers, position)
                if written != wanted:
                    raise OSError(errno.ENOSPC, f"{written} of {wanted} bytes were written at {position}", self.path)
            except OSError:
                with suppress(OSError):
                    os.ftruncate(descriptor, position)
                raise
        self.size = position + wanted
        return position

    def read(self, position: int, size: int) -> memoryview:
        size = min(size, self.size - position)
        if size <= 0:
            return memoryview(b"")
        if size > SMALL_READ_SIZE and (view := self.view(position, size)) is not None:
            return view
        self.is_used = True
        with self._guard:
            data = os.pread(self._fd if self._fd >= 0 else self._opened_again(), size, position)
        if len(data) != size:
            raise OSError(f"{self.path}: {len(data)} of {size} bytes at {position}: another process cut the file")
        return memoryview(data)

    def view(self, position: int, size: int) -> memoryview | None:
        size = min(size, self.size - position)
        if size <= 0:
            return memoryview(b"")
        mapped = self._map
        if mapped is None or len(mapped) < position + size:
            with self._guard:
                self._let_go_of_map()
                mapped = MAPPINGS.map(self._descriptor(), self.size)
            if mapped is None:
                return None
            self._map = mapped
        MAPPINGS.note_read(mapped, position, size)
        return memoryview(mapped)[position : position + size]

    def truncate(self, size: int) -> None:
        with self._guard:
            descriptor = self._descriptor()
            if self._unmap():
                os.ftruncate(descriptor, size)
            else:
                self._go_on_with_a_copy(descriptor, size)
        self.size = size

    def _let_go_of_map(self) -> None:
        if self._map is not None:
            self._older_maps = [older for older in self._older_maps if older() is not None]
            self._older_maps.append(weakref.ref(self._map))
            self._map = None

    def _unmap(self) -> bool:
        """Release all mappings; returns whether no slice of any mapping of this file is in use."""
        self._let_go_of_map()
        for older in self._older_maps:
            mapped = older()
            try:
                if mapped is not None:
                    mapped.close()
            except BufferError:
                return False
        self._older_maps = []
        return True

    def _go_on_with_a_copy(self, descriptor: int, size: int) -> None:
        """Copy the first `size` bytes to a new file, which then gets the same name. The new file gets the same
        descriptor number as the old file, so that an fsync in another thread cannot sync an unrelated file.
        """
        temporary = self.path + TEMPORARY_SUFFIX
        copy = os.open(temporary, os.O_RDWR | os.O_CLOEXEC | os.O_CREAT | os.O_TRUNC, FILE_MODE)
        try:
            copied = 0
            while copied < size:
                count = os.sendfile(copy, descriptor, copied, size - copied)
                if not count:
                    raise OSError(errno.EIO, f"{copied} of {size} bytes could be copied", self.path)
                copied += count
            os.fsync(copy)
            os.replace(temporary, self.path)
            os.dup2(copy, descriptor, inheritable=False)
        finally:
            os.close(copy)
        self._older_maps = []

    def sync(self) -> None:
        # Worker threads call this method. The fsync runs without holding `_guard`, because otherwise an append on the
        # event loop would wait for the disk.
        with self._guard:
            if self._is_closed:
                raise FileClosed(f"{self.path} was closed before it could be synced")
            descriptor = self._descriptor()
            self._syncing += 1
        try:
            os.fsync(descriptor)
        finally:
            with self._guard:
                self._syncing -= 1
                self._give_up_if_closed()

    def rest(self) -> bool:
        """Close the descriptor until the next use; returns False while the file is in use. Closing the descriptor is
        safe, because the next fsync still reports writes that failed in the kernel before it.
        """
        if not self._guard.acquire(blocking=False):
            return False
        try:
            if self._fd < 0 or self._syncing or self.is_lent:
                return False
            self._let_go_of_map()
            descriptor, self._fd = self._fd, -1
            os.close(descriptor)
            return True
        finally:
            self._guard.release()

    def close(self) -> None:
        with self._guard:
            self._map = None
            self._is_closed = True
            self._give_up_if_closed()

    def _give_up_if_closed(self) -> None:
        if not self._is_closed or self._syncing or self._fd < 0:
            return
        descriptor, self._fd = self._fd, -1
        OPEN_FILES.remove(self)
        os.close(descriptor)
        if self.is_lent:
            SPARES.refill()


def _open_file(path: str, flags: int) -> int:
    """Open a descriptor for reading and writing; if no descriptor is left, first close the descriptor of an idle file.
    Raises OSError.
    """
    try:
        return os.open(path, os.O_RDWR | os.O_CLOEXEC | flags, FILE_MODE)
    except OSError as error:
        if not is_descriptor_limit(error) or not OPEN_FILES.make_room():
            raise
    return os.open(path, os.O_RDWR | os.O_CLOEXEC | flags, FILE_MODE)


class RealDisk:
    """The file system of the operating system."""

    __slots__ = ()

    def open(self, path: str, *, create: bool = False) -> RealFile:
        return RealFile(path, create=create)

    def open_briefly(self, path: str, *, create: bool = False) -> RealFile:
        file, is_lent = _at_any_rate(lambda: self.open(path, create=create))
        file.is_lent = is_lent
        return file

    def list_directory(self, path: str) -> list[str]:
        return self._for_a_moment(lambda: sorted(os.listdir(path)))

    def make_directories(self, path: str) -> bool:
        return make_private_directory(path)

    def exists(self, path: str) -> bool:
        return os.path.exists(path)

    def is_directory(self, path: str) -> bool:
        return os.path.isdir(path)

    def size(self, path: str) -> int:
        return os.stat(path).st_size

    def room(self, path: str) -> tuple[int, int]:
        found = os.statvfs(path)
        return found.f_blocks * found.f_frsize, found.f_bavail * found.f_frsize

    def stamp(self, path: str) -> FileStamp:
        found = os.stat(path)
        return FileStamp(found.st_ino, found.st_ctime_ns, found.st_size)

    def modified_ms(self, path: str) -> int:
        return os.stat(path).st_mtime_ns // 1_000_000

    def rename(self, source: str, target: str) -> None:
        os.replace(source, target)

    def remove(self, path: str) -> None:
        with suppress(FileNotFoundError):
            os.unlink(path)

    def remove_tree(self, path: str) -> None:
        shutil.rmtree(path)

    def sync_directory(self, path: str) -> None:
        self._for_a_moment(lambda: _sync_directory(path))

    def watch_file_system(self, path: str) -> FileSystemSync | None:
        return watched_file_system(path)

    def run_syncs(self, syncs: Sequence[Callable[[], None]]) -> None:
        if len(syncs) < 2:
            for sync in syncs:
                sync()
            return
        with ThreadPoolExecutor(SYNC_THREADS, "sync logs") as threads:
            for _ in threads.map(lambda sync: sync(), syncs):
                pass

    def read_file(self, path: str) -> bytes:
        return self._for_a_moment(lambda: _read_file(path))

    def replace_file(self, path: str, data: bytes, *, is_durable: bool = True, private: bool = False) -> None:
        temporary = path + TEMPORARY_SUFFIX
        if private:
            self.remove(temporary)  # remove an old temporary file first, because other users may be able to read it
        try:
            mode = SECRET_MODE if private else FILE_MODE
            self._for_a_moment(lambda: _write_file(temporary, data, mode, is_durable=is_durable))
        except OSError:
            self.remove(temporary)  # remove the incomplete file, perhaps of a full disk
            raise
        os.replace(temporary, path)
        if is_durable:
            self.sync_directory(os.path.dirname(path))

    def replace_files(self, contents: Mapping[str, bytes]) -> None:
        temporary = {path: path + TEMPORARY_SUFFIX for path in contents}
        try:
            for path, data in contents.items():
                self._for_a_moment(partial(_write_file, temporary[path], data, FILE_MODE, is_durable=False))
            for path in contents:
                self._for_a_moment(partial(_sync_file, temporary[path]))
            for path in contents:
                os.replace(temporary[path], path)
        except OSError:
            for path in contents:
                self.remove(temporary[path])
            raise
        for directory in {os.path.dirname(path): None for path in contents}:
            self.sync_directory(directory)

    def lock(self, path: str) -> FileLock:
        return FileLock(path)

    def boot_id(self) -> str:
        try:
            return _read_file(BOOT_ID_FILE).decode().strip()
        except OSError:
            return ""

    def divide_descriptors(self, max_connections: int) -> int:
        SPARES.refill()
        division = divide(descriptor_limit(), max_connections)
        OPEN_FILES.capacity, MAPPINGS.limit = division.files, division.mappings
        return division.connections

    def _for_a_moment(self, call: Callable[[], T]) -> T:
        """Make a call that opens and closes a file, with a reserved descriptor if needed."""
        result, is_lent = _at_any_rate(call)
        if is_lent:
            SPARES.refill()
        return result


def _at_any_rate(call: Callable[[], T]) -> tuple[T, bool]:
    """Run `call`, which opens one file: with a free descriptor, otherwise with the descriptor of an idle file,
    otherwise with a reserved descriptor. Returns the result, and whether a reserved descriptor was used.
    """
    try:
        return call(), False
    except OSError as error:
        if not is_descriptor_limit(error):
            raise
        if OPEN_FILES.make_room():
            with suppress(OSError):
                return call(), False
        if not SPARES.lend():
            raise
    try:
        return call(), True
    except BaseException:
        SPARES.refill()
        raise


def _sync_directory(path: str) -> None:
    descriptor = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def _read_file(path: str) -> bytes:
    with open(path, "rb") as file:
        return file.read()


def _write_file(path: str, data: bytes, mode: int, *, is_durable: bool) -> None:
    with open(path, "wb", opener=lambda name, flags: os.open(name, flags, mode)) as file:
        file.write(data)
        if is_durable:
            file.flush()
            os.fsync(file.fileno())


def _sync_file(path: str) -> None:
    descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
