"""The disk interface works on a real file system."""

import mmap
import os
import subprocess
import sys

import pytest
from tests.support.descriptors import no_descriptors_left

from oncelog_broker.runtime import disk as disk_module
from oncelog_broker.runtime.descriptors import SPARE_COUNT, is_descriptor_limit
from oncelog_broker.runtime.disk import SMALL_READ_SIZE, RealDisk
from oncelog_broker.runtime.file_lock import LockHeld
from oncelog_broker.runtime.mappings import Mappings
from oncelog_broker.runtime.open_files import OPEN_FILES


@pytest.fixture
def disk():
    return RealDisk()


@pytest.fixture
def file(disk, tmp_path):
    opened = disk.open(str(tmp_path / "file"), create=True)
    yield opened
    opened.close()


def test_append_returns_positions_and_read_gives_the_bytes_back(file):
    assert file.append(b"abc") == 0
    assert file.append(b"de", bytearray(b"f"), memoryview(b"g")) == 3
    assert file.size == 7
    assert bytes(file.read(2, 3)) == b"cde"
    assert bytes(file.read(5, 100)) == b"fg"
    assert bytes(file.read(7, 1)) == b""


def test_an_absent_file_is_not_made_unless_asked(disk, tmp_path):
    with pytest.raises(FileNotFoundError):
        disk.open(str(tmp_path / "absent"))


def test_large_reads_are_slices_of_a_mapping_that_follows_the_file(file):
    block = bytes(range(256)) * (SMALL_READ_SIZE // 256)
    file.append(block, b"x")
    first = file.read(0, SMALL_READ_SIZE + 1)
    file.append(block)
    second = file.read(SMALL_READ_SIZE // 2, SMALL_READ_SIZE + 1)
    assert first == block + b"x"
    assert second == (block + b"x" + block)[SMALL_READ_SIZE // 2 :][: SMALL_READ_SIZE + 1]
    assert first.readonly
    file.close()
    assert bytes(first[:4]) == block[:4], "a view outlives the file"


def test_a_view_is_a_slice_of_a_mapping_however_small(file):
    file.append(b"abcdef")
    view = file.view(2, 100)
    assert isinstance(view.obj, mmap.mmap)
    assert view == b"cdef"


def test_mappings_are_counted_as_long_as_anybody_holds_a_slice(file, disk, tmp_path, monkeypatch):
    monkeypatch.setattr(disk_module, "MAPPINGS", mappings := Mappings(limit=2))
    other = disk.open(str(tmp_path / "other"), create=True)
    block = bytes(SMALL_READ_SIZE + 1)
    file.append(block)
    other.append(block)
    held = file.view(0, 10)
    file.append(b"more")
    grown = file.view(0, file.size)
    assert mappings.count == 2
    assert other.view(0, 10) is None
    copied = other.read(0, len(block))
    assert not isinstance(copied.obj, mmap.mmap), "as there can be no further mapping"
    assert copied == block
    del held, grown
    assert mappings.count == 1, "that of the file as it is now"
    file.close()
    assert mappings.count == 0
    assert other.view(0, 10) == bytes(10)
    other.close()


@pytest.mark.parametrize("buffers", [(b"abcdef",), (b"abc", b"def")])
def test_a_short_write_is_cut_back_and_raised(file, monkeypatch, buffers):
    file.append(b"whole")
    real = os.pwrite
    monkeypatch.setattr(disk_module.os, "pwrite", lambda fd, data, at: real(fd, bytes(data)[:2], at))
    monkeypatch.setattr(disk_module.os, "pwritev", lambda fd, data, at: real(fd, bytes(data[0])[:2], at))
    with pytest.raises(OSError, match="2 of 6 bytes"):
        file.append(*buffers)
    assert file.size == 5
    assert os.path.getsize(file.path) == 5


def test_a_refused_write_changes_nothing(file, monkeypatch):
    def refuse(*args):
        raise OSError(28, "No space left on device")

    file.append(b"whole")
    monkeypatch.setattr(disk_module.os, "pwrite", refuse)
    with pytest.raises(OSError, match="No space"):
        file.append(b"more")
    assert (file.size, os.path.getsize(file.path)) == (5, 5)


def test_a_file_that_another_process_cut_is_an_error_not_a_short_read(file):
    file.append(b"whole")
    os.truncate(file.path, 3)
    with pytest.raises(OSError, match="another process cut"):
        file.read(0, 5)


def test_truncate_and_append_again(file):
    file.append(b"abcdef")
    file.truncate(2)
    assert file.append(b"X") == 2
    assert bytes(file.read(0, 10)) == b"abX"


def test_views_that_are_held_survive_a_truncation(file):
    """Touching a mapped page after the file was truncated would kill the process."""
    data = bytes(range(256)) * 4096
    file.append(data)
    view = file.read(0, len(data))
    file.append(data)
    later = file.read(len(data) - 1, len(data) + 1)  # this view is of a newer mapping
    file.truncate(len(data) // 2)
    assert bytes(view) == data
    assert bytes(later[1:]) == data
    assert (file.size, os.path.getsize(file.path)) == (len(data) // 2, len(data) // 2)
    assert file.append(b"new") == len(data) // 2
    assert bytes(file.read(0, len(data))) == data[: len(data) // 2] + b"new"
    file.sync()


def test_truncation_without_views_cuts_the_file_in_place(file):
    file.append(bytes(1 << 20))
    inode = os.stat(file.path).st_ino
    file.read(0, 1 << 20)
    file.truncate(1 << 19)
    assert os.stat(file.path).st_ino == inode
    assert bytes(file.read(0, 1 << 20)) == bytes(1 << 19)


def test_sync_after_close_is_an_error(file):
    file.sync()
    file.close()
    with pytest.raises(OSError, match="closed"):
        file.sync()


def test_replace_file_leaves_no_temporary(disk, tmp_path):
    path = str(tmp_path / "small")
    disk.replace_file(path, b"one")
    disk.replace_file(path, b"two")
    assert disk.read_file(path) == b"two"
    assert disk.list_directory(str(tmp_path)) == ["small"]


def test_replace_file_keeps_the_old_content_if_writing_fails(disk, tmp_path, monkeypatch):
    path = str(tmp_path / "small")
    disk.replace_file(path, b"one")

    def fail(fd):
        raise OSError(5, "Input/output error")

    monkeypatch.setattr(disk_module.os, "fsync", fail)
    with pytest.raises(OSError, match="Input/output"):
        disk.replace_file(path, b"two")
    assert disk.read_file(path) == b"one"


def test_remove_of_an_absent_file_is_no_error(disk, tmp_path):
    disk.remove(str(tmp_path / "absent"))
    assert not disk.exists(str(tmp_path / "absent"))


def test_a_lock_is_not_given_twice_in_one_process(disk, tmp_path):
    path = str(tmp_path / ".lock")
    lock = disk.lock(path)
    with pytest.raises(LockHeld, match="already open in this process"):
        disk.lock(path)
    lock.release()
    lock.release()
    disk.lock(path).release()


@pytest.mark.parametrize("how", ["symbolic link", "mount"])
def test_a_lock_is_not_given_by_two_names_of_its_directory(disk, tmp_path, how):
    one, two = tmp_path / "one", tmp_path / "two"
    one.mkdir()
    lock = disk.lock(str(one / ".lock"))
    if how == "symbolic link":
        two.symlink_to(one)
    else:
        two.mkdir()
        (two / ".lock").hardlink_to(one / ".lock")  # the same file, as in a volume that is mounted twice
    with pytest.raises(LockHeld, match=f"{two} is already open in this process as {one}: log.dirs must name"):
        disk.lock(str(two / ".lock"))
    lock.release()
    disk.lock(str(two / ".lock")).release()


def test_a_lock_excludes_another_process(disk, tmp_path):
    path = str(tmp_path / ".lock")
    program = (
        "import fcntl, sys; f = open(sys.argv[1], 'a'); fcntl.lockf(f, fcntl.LOCK_EX); "
        "print('held', flush=True); sys.stdin.read()"
    )
    with subprocess.Popen(
        [sys.executable, "-S", "-c", program, path], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    ) as other:
        assert other.stdout.readline() == b"held\n"
        with pytest.raises(LockHeld, match="another process") as caught:
            disk.lock(path)
        assert str(tmp_path) in str(caught.value)
        other.stdin.close()
        other.wait()
    disk.lock(path).release()


class TestNoDescriptorLeft:
    def test_a_briefly_opened_file_gets_the_reserved_descriptor(self, disk, tmp_path):
        path = str(tmp_path / "checkpoint")
        with no_descriptors_left():
            for number in range(3 * SPARE_COUNT):
                disk.replace_file(path, b"%d" % number)
                file = disk.open_briefly(str(tmp_path / "index"), create=True)
                assert file.append(b"x") == number
                file.close()
            assert disk.read_file(path) == b"%d" % (3 * SPARE_COUNT - 1)
            assert disk.list_directory(str(tmp_path)) == ["checkpoint", "index"]
            with pytest.raises(FileNotFoundError):
                disk.open_briefly(str(tmp_path / "absent"))

    def test_a_long_open_file_gets_no_descriptor_if_no_file_can_rest(self, disk, tmp_path, monkeypatch):
        monkeypatch.setattr(OPEN_FILES, "make_room", lambda: False)
        with no_descriptors_left(), pytest.raises(OSError, match="Too many open files") as caught:
            disk.open(str(tmp_path / "segment"), create=True)
        assert is_descriptor_limit(caught.value)

    def test_a_large_read_is_a_copy(self, file):
        """A mapping would need its own file descriptor."""
        block = bytes(range(256)) * (SMALL_READ_SIZE // 128)
        file.append(block)
        with no_descriptors_left():
            assert bytes(file.read(0, len(block))) == block
