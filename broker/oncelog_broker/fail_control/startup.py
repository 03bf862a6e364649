"""The options of `oncelog serve` for tests: one ends the broker together with its parent process, the other serves the
fail control.
"""

from __future__ import annotations

import asyncio
from contextlib import suppress

from oncelog_broker.config.declared import InvalidConfig


class StartupOptions:
    """The test options of a starting broker. Create this object before the broker's modules are imported, because fail
    points are installed during the import."""

    def __init__(self, *, stops_at_eof: bool, fail_control: str | None) -> None:
        """`fail_control`: the address of the fail control, [HOST:]PORT; None means no fail control. Raises
        InvalidConfig.
        """
        self._stops_at_eof = stops_at_eof
        self._control = None
        self.line: str | None = None
        """The line for standard output with the address of the fail control, set by `begin`; None without a fail
        control."""
        if fail_control is not None:
            from oncelog.fail_points.point import arm

            faults = arm()
            from oncelog_broker.fail_control.http_control import HttpControl, parse_address

            try:
                address = parse_address(fail_control)
            except ValueError as error:
                raise InvalidConfig(f"--fail-control: {error}") from None
            self._control = HttpControl(faults, address)

    def begin(self, stop: asyncio.Event) -> None:
        """Activate the test options in the event loop of the broker; `stop` is set when standard input ends, which
        means that the parent process has ended. Raises InvalidConfig.
        """
        loop = asyncio.get_running_loop()
        if self._control is not None:
            try:
                self.line = f"fail control at {self._control.start(loop)}"
            except OSError as error:
                raise InvalidConfig(f"--fail-control: {error}") from None
        if self._stops_at_eof:
            from oncelog_broker.runtime.parent import at_end_of_input

            def ended() -> None:
                # Close the fail control first, which resumes a paused broker, because a paused broker could not react
                # to `stop`.
                self.end()
                with suppress(RuntimeError):  # raised if the broker has stopped and closed its loop
                    loop.call_soon_threadsafe(stop.set)

            at_end_of_input(ended)

    def end(self) -> None:
        """Close the fail control, which resumes a paused broker."""
        if self._control is not None:
            self._control.close()
