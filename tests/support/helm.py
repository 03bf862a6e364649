"""Helm for tests: finds it on PATH or in the user's cache, into which `make helm` builds it with Go (some minutes)."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Final

import pytest

CACHE: Final = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "oncelog" / "helm"
MODULE: Final = "helm.sh/helm/v3/cmd/helm@v3.18.4"
BUILD_SECONDS: Final = 1800


def program() -> str | None:
    """The path of helm on this machine, if it is there."""
    cached = CACHE / "helm"
    return shutil.which("helm") or (str(cached) if cached.exists() else None)


def needed() -> str:
    """The path of helm; skips the test where it is not there."""
    found = program()
    if found is None:
        pytest.skip("helm is not here: `make helm` builds it, or install it")
    return found


def build() -> str | None:
    """Build helm into the cache. Returns why that is not possible, else None."""
    go = shutil.which("go")
    if go is None:
        return "there is no Go to build it with; install helm by your package manager"
    CACHE.mkdir(parents=True, exist_ok=True)
    environment = {**os.environ, "GOBIN": str(CACHE)}
    done = subprocess.run(
        [go, "install", "-trimpath", "-ldflags=-s -w", MODULE],
        env=environment,
        capture_output=True,
        text=True,
        timeout=BUILD_SECONDS,
        check=False,
    )
    return None if done.returncode == 0 else done.stderr[-500:].strip()


def main() -> int:
    """Say where helm is, after building it where it is missing; 1 if there is none."""
    problem = None if program() else build()
    found = program()
    print(found or f"no helm: {problem}", file=sys.stdout if found else sys.stderr)
    return 0 if found else 1


if __name__ == "__main__":
    sys.exit(main())
