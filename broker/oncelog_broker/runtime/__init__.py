"""The seams: everything from outside (time, network, disk, tasks) enters through here, the real one or a simulated one.

`clock` wall and monotonic time, `network` listening sockets, `disk` files, `tasks` background tasks and deadlines,
`entropy` random bytes, `descriptors` how many files may be open, `steps` long work that can be paused.
"""
