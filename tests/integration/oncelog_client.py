"""Our own client, on an event loop of its own."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine, Mapping, Sequence
from contextlib import asynccontextmanager
from typing import Any, TypeVar

from foreign_clients import TIMEOUT_SECONDS, ForeignClient, Placed, Received, Record, Refused
