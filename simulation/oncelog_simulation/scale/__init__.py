"""Measures simulated clusters of different sizes: what grows with brokers and partitions, and where it stops scaling.

- `command`: the command `python -m oncelog_simulation scale`
- `figures_file`: the file that keeps the figures
- `measuring`: the episodes of a measurement: start, topics, groups, producers, lost brokers, restarts
- `filling`: creates topics, groups and producers
- `world`: the simulated cluster, and how to wait for its states
- `metered_loop`: virtual time that contains the processor time of the code; processor times of each broker
- `lasting_storage`, `metadata_copies`: save memory: disks without faults, and copies of the metadata in parts
- `partition_states`, `traffic`: leaders and in-sync replicas, and the requests to the store and between brokers
- `size`, `growth`, `report`: sizes, growth laws, and the tables of docs/guides/sizing.md
"""
