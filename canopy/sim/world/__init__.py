"""A world of virtual time that runs the same Node as a process does.

Read `scheduler` (virtual time), `world` (what can be done to a world), `network` and `driver`
(one process), then `disk`, `processor`, `clients` (programs that subscribe and publish) and
`recorder` (trace records and their hash). `traffic` counts messages and bytes by purpose,
`cost` the time and memory of the simulation itself. All chance comes from generators that
are named and seeded with the world's seed, so a seed is one history.
"""
