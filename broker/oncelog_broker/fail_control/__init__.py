"""Faults on demand: what a test tells a running broker to do wrong, by a small HTTP control (`oncelog serve
--fail-control`). Nobody listens unless asked to, and then no request is looked at.

`arrangements` are what `oncelog serve` is asked for. `http_control` hears what is ordered, in threads of its own, so
that a broker that stands still can be told to go on; `orders` is what may be ordered, in JSON (pure), and `catalogue`
where a fault can strike and what it can do there. `standstill` has the broker stand still. The faults themselves are
done by `oncelog.fail_points`, and in `server.faulty` for requests and answers.
"""
