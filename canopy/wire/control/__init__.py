"""The control socket: how programs on this machine use the node, both sides of it."""
