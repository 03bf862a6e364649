"""A whole cluster in one process, from one seed: real brokers and clients in a simulated world, and what befalls it.

`loop` is the event loop with virtual time, and `process` what runs in it; `clock` has the clocks of its hosts. The
network is in `network`, `links` and `streams`, the disks in `storage` and `disk`, the metadata store in `ensemble` and
`sessions`; `entropy` has the random streams of a seed. `guard` keeps everything else from the real machine.

`plan` says what befalls a world. `machine` has its brokers and clients, on what they share (`surroundings`); `world`
puts everything together. `faults` is the table of faults, and `drawing` draws plans from seeds. `run` runs a plan,
with an `operator` in the end; `timeline` is what happened, with the `log_lines` of brokers and clients.

`scenario` puts `workloads/` and `judges/` together for the whole cluster, and `application` a service of a user with a
judge. `shrink` makes a failing plan smaller, and `story` tells what happened in it. `defects/` are faults of the code
that the judges must find, and `reached` tells which branches of the broker the seeds reach. `command` is the command
line. docs/design/simulation.md tells how it works.
"""
