"""The seams: everything from outside (time, network, disk, tasks) enters through here, the real one or a simulated one.

`clock` wall and monotonic time, `network` connections, `accepting` those that come, `disk` files, `tasks` background
tasks and deadlines, `entropy` random bytes, `parent` the end of the process that started us; `host` is one value with
the clock, disk, network and background work of one broker. `descriptors` says who may have how many file descriptors,
`open_files` which files have one, and `mappings` counts those that are mapped. `disk_troubles` keeps a disk that fails
again and again from filling the log, `addresses` has one spelling for each address, and `private_files` says who may
read what a broker makes.

How work and waiting are written down: `answers` a value that is there or comes later, `steps` long work as a generator,
`slices` runs it in slices, `round_robin` gives those that wait their slices in turn, `loop_budget` bounds what is done
in one turn of the loop. `garbage` keeps full collections short.
"""
