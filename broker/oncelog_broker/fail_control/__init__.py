"""Fault injection: a test makes a running broker misbehave, over a small HTTP control (`oncelog serve --fail-control`).
The control is off by default: no listener is opened, and requests are not inspected.

`startup` has the test options of `oncelog serve`. `http_control` serves the control from its own threads, so that a
paused broker can be resumed; `commands` parses the JSON of a command (pure), and `catalogue` lists each point with the
faults that the point supports. `standstill` pauses the event loop. `oncelog.fail_points` and `server.faulty` perform
the faults.
"""
