"""A world of virtual time: network, disks, processors, nodes and their clients."""
