"""An entire cluster in one process, determined by one seed: real brokers and clients in a simulated world, and faults
that strike them.

`loop` is the event loop with virtual time, `process` one process that runs in it; `clock` has the clocks of its hosts.
The network is in `network`, `links` and `streams`, the disks in `storage` and `disk`, the metadata store in `ensemble`
and `sessions`; `entropy` has the random streams of a seed. `guard` prevents all other code from using the real machine.

`plan` lists the workloads and faults of a run. `machine` has the brokers and clients, on shared `surroundings`; `world`
combines all of them. `faults/` are the faults, and `drawing` draws plans from seeds. `run` runs a plan, with an
`operator` at the end; `timeline` records the events, with the `log_lines` of brokers and clients.

`scenario` combines `workloads/` and `judges/` for tests of the entire cluster, and `application` combines a user's
service with a judge. `shrink` makes a failing plan smaller, and `story` prints the events in it. `defects/` are seeded
defects of the code that the judges must find, and `reached` reports which branches of the broker the seeds reach.
`command` is the command line. docs/design/simulation.md describes the simulation.
"""
