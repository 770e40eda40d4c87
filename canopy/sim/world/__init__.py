"""A world of virtual time that runs the same Node as a process does.

Read `scheduler` (virtual time), `world` (the operations on a world), `network` and `driver` (one
process), then `disk` (its data folder), `log_disk` (the shards of streams), `processor`, `clients`
(programs that subscribe and publish) and `recorder` (trace records and their hash). `signer` makes
signatures that cost nothing, and has the ends and renewals of certificates. `traffic` counts
messages and bytes by purpose, `cost` the time and memory of the simulation itself. All random
numbers come from generators that are named and seeded with the world's seed, so a seed is one
history.
"""
