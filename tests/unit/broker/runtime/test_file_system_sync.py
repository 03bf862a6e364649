"""The file system is synced only where the system reports each failed write."""

from __future__ import annotations

import errno
import os
from pathlib import Path

import pytest

from oncelog_broker.runtime.file_system_sync import (
    SystemSync,
    file_system_type,
    reports_failures,
    watched_file_system,
)

MOUNTS = """\
22 29 0:21 / /proc rw,nosuid shared:12 - proc proc rw
29 1 254:0 / / rw,relatime shared:1 - ext4 /dev/vda rw
30 29 254:0 /srv /srv rw,relatime - ext4 /dev/vda rw
31 29 0:50 / /data rw,relatime - fuse.sshfs host: rw
32 29 0:51 / /mixed rw - xfs /dev/a rw
33 29 0:51 / /mixed2 rw - overlay overlay rw
broken
"""


@pytest.mark.parametrize(
    ("platform", "release", "expected"),
    [
        ("linux", "5.8.0", True),
        ("linux", "6.1.0-28-amd64", True),
        ("linux", "10.0", True),
        ("linux", "5.7.19", False),
        ("linux", "4.19", False),
        ("linux", "unknown", False),
        ("darwin", "23.1.0", False),
    ],
)
def test_the_kernel_must_report_failed_writes(platform: str, release: str, expected: bool) -> None:
    assert reports_failures(platform, release) is expected


@pytest.mark.parametrize(
    ("device", "expected"), [((254, 0), "ext4"), ((0, 50), "fuse.sshfs"), ((0, 51), None), ((8, 1), None)]
)
def test_the_type_of_a_file_system(device: tuple[int, int], expected: str | None) -> None:
    assert file_system_type(MOUNTS, os.makedev(*device)) == expected


def test_a_directory_that_is_not_there_is_not_watched(tmp_path: Path) -> None:
    assert watched_file_system(str(tmp_path / "gone")) is None


def test_a_file_system_is_synced_until_it_is_closed(tmp_path: Path) -> None:
    sync = SystemSync(str(tmp_path))
    (tmp_path / "file").write_bytes(b"x")
    sync.sync()
    sync.close()
    with pytest.raises(OSError, match="Bad file descriptor") as failure:
        sync.sync()
    assert failure.value.errno == errno.EBADF
