"""Fault injection: a test tells a running broker to misbehave, over a small HTTP control (`oncelog serve
--fail-control`). Off by default: no listener is opened, and requests are not inspected.

`startup` holds the options of `oncelog serve`. `http_control` serves the control from its own threads, so that a paused
broker can be resumed; `commands` is the JSON of a command (pure), and `catalogue` lists each point with the faults it
supports. `standstill` pauses the event loop. `oncelog.fail_points` and `server.faulty` carry the faults out.
"""
