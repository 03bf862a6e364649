"""The archive of `oncelog support bundle`: text files in a .tar.gz, each without secrets."""

from __future__ import annotations

import io
import json
import os
import tarfile
from collections.abc import Iterable
from pathlib import Path
from types import TracebackType
from typing import Any, Final, Self

from oncelog.cli.redaction import redacted, redacted_document

MAX_LOG_BYTES: Final = 8 * 1024 * 1024
"""Maximum number of bytes that are read from the end of a log file."""


class SupportArchive:
    """A context manager that writes the archive to a temporary file beside its path and renames the file at the end, so
    that a partial archive never has the final name.

    Only the owner can read the file.
    """

    def __init__(self, path: Path, secrets: Iterable[str], now_s: int) -> None:
        """`now_s` is the modification time of the files in the archive, in seconds since the epoch. Raises OSError."""
        self.path = path
        self.names: list[str] = []
        self._root = path.name.removesuffix(".tar.gz")
        self._secrets = tuple(secrets)
        self._now_s = now_s
        self._unfinished = path.with_name(f".{path.name}.unfinished")
        descriptor = os.open(self._unfinished, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
        self._file = os.fdopen(descriptor, "wb")
        self._tar = tarfile.open(fileobj=self._file, mode="w:gz")  # noqa: SIM115  closed by __exit__

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._tar.close()
        self._file.close()
        if error is None:
            self._unfinished.replace(self.path)
        else:
            self._unfinished.unlink(missing_ok=True)

    def add_text(self, name: str, text: str) -> None:
        """Add a file with this text, redacted."""
        self._add(name, redacted(text, self._secrets))

    def add_document(self, name: str, value: Any) -> None:
        """Add a value as JSON, redacted; values that JSON does not support are added as text."""
        plain = json.loads(json.dumps(value, default=str))
        self._add(name, json.dumps(redacted_document(plain, self._secrets), indent=2, ensure_ascii=False) + "\n")

    def _add(self, name: str, text: str) -> None:
        content = text.encode(errors="replace")
        member = tarfile.TarInfo(f"{self._root}/{name}")
        member.size, member.mtime, member.mode = len(content), self._now_s, 0o600
        self._tar.addfile(member, io.BytesIO(content))
        self.names.append(name)


def last_lines(path: Path, lines: int) -> str:
    """Return the last lines of a log file, from at most its last MAX_LOG_BYTES. Raises OSError."""
    with path.open("rb") as file:
        size = file.seek(0, os.SEEK_END)
        file.seek(max(0, size - MAX_LOG_BYTES))
        text = file.read().decode(errors="replace")
    return "\n".join(text.splitlines()[-lines:]) + "\n"
