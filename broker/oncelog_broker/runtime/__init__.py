"""The broker's access to the outside (time, network, disk) and its background work; tests and simulations replace each
part.

The modules: `clock` reads wall and monotonic time, `network` makes connections, `accepting` accepts connections, and
`disk` accesses files (`file_lock` locks a data directory, `file_system_sync` syncs a whole file system). `tasks` runs
background tasks and deadlines, `entropy` returns random bytes, and `parent` ends the process together with its parent
process. `host` combines the clock, disk, network and background work of one broker
in one value. `descriptors` divides the file descriptors, `open_files` closes idle files, and `mappings` limits memory
mappings. `disk_troubles` limits the log lines about a failing disk, and `addresses` normalises host addresses.
`reserved_ports` reserves ports on which several processes listen, `cores` counts processor cores, and `private_files`
sets file modes.

For waiting and long work, `answers` has answers, which are values or futures of values; `steps` has long work in the
form of generators, and `slices` runs it in slices. `round_robin` gives waiting work its slices in round-robin order,
and `loop_budget` limits the work in one iteration of the event loop. `garbage` keeps full garbage collections short.
"""
