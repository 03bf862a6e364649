"""Fault injection: a test makes a running broker misbehave, over a small HTTP control (`oncelog serve --fail-control`).
The control is off by default: no listener is opened, and requests are not inspected.

`startup` has the test options of `oncelog serve`. `http_control` serves the control in its own threads, so that a
client can resume a paused broker. `commands` parses the JSON of a command (without I/O). `catalogue` lists the points
at which a fault can be set, each with its supported faults. `standstill` pauses the event loop. `oncelog.fail_points`
and `server.faulty` perform the faults.
"""
