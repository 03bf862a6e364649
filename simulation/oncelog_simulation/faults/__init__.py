"""All kinds of faults that may strike a simulated world.

- `fault` defines a kind of fault, and has functions that several faults use.
- `processes` has kills, stops, pauses and power cuts.
- `clocks` has clocks that are set, or that run too fast or too slow.
- `network` has links that are cut or slow, and streams that break or stall.
- `leadership` has a leader that changes again and again, or while messages of a replica are late.
- `store` has faults of the metadata store.
- `disks` has disks that fail for some time and then work again.
- `lost_disks` has faults that destroy the contents of disks.
- `catalogue` lists all faults by name, and has the function that ends them.
"""
