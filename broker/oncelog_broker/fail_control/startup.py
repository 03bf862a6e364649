"""The options of `oncelog serve` for tests: end with the parent process, and serve the fail control."""

from __future__ import annotations

import asyncio
from contextlib import suppress

from oncelog.cli.running import Failure


class StartupOptions:
    """The test options of a starting broker. Create it before the broker's modules are imported, as fail points are
    marked then."""

    def __init__(self, *, stops_at_eof: bool, fail_control: str | None) -> None:
        """`fail_control`: the address of the control, [HOST:]PORT. Raises Failure."""
        self._stops_at_eof = stops_at_eof
        self._control = None
        self.line: str | None = None
        """The line for standard output with the control's address, after `begin`."""
        if fail_control is not None:
            from oncelog.fail_points.point import arm

            faults = arm()
            from oncelog_broker.fail_control.http_control import HttpControl, parse_address

            try:
                address = parse_address(fail_control)
            except ValueError as error:
                raise Failure(f"cannot start: --fail-control: {error}") from None
            self._control = HttpControl(faults, address)

    def begin(self, stop: asyncio.Event) -> None:
        """Start in the loop of the broker; `stop` is set at the end of standard input. Raises Failure."""
        loop = asyncio.get_running_loop()
        if self._control is not None:
            try:
                self.line = f"fail control at {self._control.start(loop)}"
            except OSError as error:
                raise Failure(f"cannot start: --fail-control: {error}") from None
        if self._stops_at_eof:
            from oncelog_broker.runtime.parent import at_end_of_input

            def ended() -> None:
                self.end()  # a paused broker could not react
                with suppress(RuntimeError):  # the loop is closed: the broker has stopped by itself
                    loop.call_soon_threadsafe(stop.set)

            at_end_of_input(ended)

    def end(self) -> None:
        """Close the control; a paused broker is resumed."""
        if self._control is not None:
            self._control.close()
