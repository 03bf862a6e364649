"""The broker's access to the outside (time, network, disk) and its background work; tests and simulations replace each.

`clock` wall and monotonic time, `network` connections, `accepting` incoming connections, `disk` files, `tasks`
background tasks and deadlines, `entropy` random bytes, `parent` end with the parent process; `host` is one value with
the clock, disk, network and background work of one broker. `descriptors` divides the file descriptors, `open_files`
closes idle files, `mappings` counts memory mappings. `disk_troubles` limits the log lines of a failing disk,
`addresses` normalises host addresses, `reserved_ports` holds ports for several processes that listen on them, `cores`
counts processor cores, and `private_files` sets file modes.

Answers and long work: `answers` is a value or a future of one, `steps` is long work as a generator, `slices` runs it in
slices, `round_robin` lets waiting work take slices in turn, `loop_budget` limits the work in one iteration of the event
loop. `garbage` keeps full collections short.
"""
