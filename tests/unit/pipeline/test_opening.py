"""Opening a client waits for a broker that is down for a short time."""

from __future__ import annotations

import pytest
from tests.support.virtual_time import run_virtually

from oncelog.errors import ConfigError, ConnectionFailed
from oncelog_pipeline.opening import AGAIN_SECONDS, opened


class Client:
    """A client whose first `failures` starts fail."""

    failures: int
    error: Exception = ConnectionFailed("no broker can be reached")
    made: list[Client]

    def __init__(self) -> None:
        self.is_closed = False
        self.made.append(self)

    async def start(self) -> None:
        if len(self.made) <= self.failures:
            raise self.error

    async def close(self) -> None:
        self.is_closed = True


def client_class(times: int, failure: Exception | None = None) -> type[Client]:
    class Failing(Client):
        failures = times
        error = failure or Client.error
        made: list[Client] = []  # noqa: RUF012 - of this class alone

    return Failing


def test_opening_waits_for_a_returning_broker(caplog: pytest.LogCaptureFixture) -> None:
    made = client_class(times=5)
    client = run_virtually(opened(made, 60.0))
    assert client is made.made[-1]
    assert [each.is_closed for each in made.made] == [True] * 5 + [False]
    assert caplog.text.count("trying again for 60 s") == 1


def test_opening_gives_up_after_its_timeout() -> None:
    made = client_class(times=10_000)
    with pytest.raises(ConnectionFailed):
        run_virtually(opened(made, 4.0))
    assert len(made.made) == pytest.approx(4.0 / AGAIN_SECONDS, abs=1)


def test_a_permanent_error_is_raised_at_once() -> None:
    made = client_class(times=10_000, failure=ConfigError("no such setting"))
    with pytest.raises(ConfigError):
        run_virtually(opened(made, 60.0))
    assert [each.is_closed for each in made.made] == [True]
