"""Runs a cluster of real brokers and clients in one process, in a simulated world. One seed determines the whole run,
also the faults that strike brokers, clients, network and disks.

`loop` is the event loop with virtual time; `process` is one simulated process that runs in the loop; `clock` has the
clocks of the simulated hosts. The network is in `network`, `links` and `streams`, the disks in `storage` and `disk`,
the metadata store in `ensemble` and `sessions`; `entropy` has the random streams of a seed. `guard` prevents all code
inside a run from using the real machine.

`plan` lists the workloads and faults of a run. `machine` has the hosts on which brokers and clients run; `surroundings`
has what all hosts share; `world` combines the hosts with the network, the disks and the metadata store. `faults/` has
the kinds of faults, `drawing` draws a plan from a seed, and `weeks` makes a plan of days from it. `scenes/` has the
scripts of directed plans, which bring about rare situations. `run` runs a plan;
when the faults are over, an `operator` repairs the cluster. `timeline` records the events, and `log_lines` adds the log
lines of brokers and clients to it.

`scenario` combines `workloads/` and `judges/` for tests of the entire cluster. `application` combines a user's service
with a judge, and `recorded_application` any application that records what it writes. `shrink` makes a failing plan
smaller, and `story` prints the events in it. `defects/` are seeded defects of oncelog's code that the judges must find,
and `reached` reports which branches of the broker's code the seeds execute. `scale/` measures what clusters of many
brokers and partitions need. `command` is the command line. docs/design/simulation.md describes the simulation.
"""
