"""A whole cluster in one process, from one seed: real brokers and clients in a simulated world, and the faults that
strike it.

`loop` is the event loop with virtual time, `process` one process that runs in it; `clock` has the clocks of its hosts.
The network is in `network`, `links` and `streams`, the disks in `storage` and `disk`, the metadata store in `ensemble`
and `sessions`; `entropy` has the random streams of a seed. `guard` keeps all other code from the real machine.

`plan` lists the faults and workloads of a run. `machine` has the brokers and clients, on shared `surroundings`; `world`
combines all of them. `faults` is the table of faults, and `drawing` draws plans from seeds. `run` runs a plan, with an
`operator` at the end; `timeline` records the events, with the `log_lines` of brokers and clients.

`scenario` puts `workloads/` and `judges/` together for the whole cluster, and `application` a service of a user with a
judge. `shrink` makes a failing plan smaller, and `story` tells what happened in it. `defects/` are faults of the code
that the judges must find, and `reached` tells which branches of the broker the seeds reach. `command` is the command
line. docs/design/simulation.md tells how it works.
"""
