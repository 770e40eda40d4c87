"""The simulator: the same Node as in a process, in a world of virtual time, reproducible by seed.

Folders, in the order of reading:

* `world`: virtual time, network, disks, processors; nodes and the clients that use them,
* `scenario`: a run described in YAML, its load, its faults, its stages and its result,
* `checks`: the oracle of deliveries, and invariants of logs, arcs, trees, walks and bounds,
* `soak`: random scenarios by seed, pairs of faults, and the search for a smaller failing scenario.

sim imports node, overlay, matching and canopy.traces, never canopy.wire: the codec is handed in.
The bodies of batches are encoded and decoded with it as between processes, so that nodes share no
object and whatever the codec cannot carry is found here.
"""
