"""What a test asks of `oncelog serve` beside a broker: to end with it, and to take orders to fail."""

from __future__ import annotations

import asyncio

from oncelog.cli.running import Failure


class StartupOptions:
    """Made before the broker's modules are imported: their fail points are marked then."""

    def __init__(self, *, stops_at_eof: bool, fail_control: str | None) -> None:
        """`fail_control`: where orders are taken, [HOST:]PORT. Raises Failure."""
        self._stops_at_eof = stops_at_eof
        self._control = None
        self.line: str | None = None
        """For standard output, once `begin` has returned: where the control is."""
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
        """In the loop that is to serve; `stop` is set at the end of standard input. Raises Failure."""
        loop = asyncio.get_running_loop()
        if self._control is not None:
            try:
                self.line = f"fail control at {self._control.start(loop)}"
            except OSError as error:
                raise Failure(f"cannot start: --fail-control: {error}") from None
        if self._stops_at_eof:
            from oncelog_broker.runtime.parent import at_end_of_input

            def ended() -> None:
                self.end()  # a broker that stands still by order would not hear of it
                loop.call_soon_threadsafe(stop.set)

            at_end_of_input(ended)

    def end(self) -> None:
        """No more orders; who stands still goes on."""
        if self._control is not None:
            self._control.close()
