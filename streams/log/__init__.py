"""The log of one shard: bytes in, bytes out.

*Promises*: what `chunk.pack` made is read back unchanged or not at all; a chunk has its place in
one log only, by the SHA-256 of the chunk before it; a folder is read so that a torn tail and damage
are told apart, and neither is taken for data (docs/design/streams.md).

*Called by*: `canopy stream verify`.

*Read in this order*:

* `chunk`: the unit that is written, replicated and hashed. `batches`: what a chunk of events has in
  it. `zones`: what its rows have at least and at most, attribute by attribute.
* `state`: what the log says of producers, replicas and floors; each segment begins with it.
  `origins`: of rows that came from elsewhere. `lost_rows`: of rows that damage has cost.
* `table`: the newest row of each key. `group_state`, `runs`: what it says of consumer groups.
* `scan`: one segment read, with its holes and its torn tail. `recovery`: a folder read at start.
* `shard_log`: a shard's chunks and segments in memory, where each lies; places by offset and time.
* `verify`: a whole folder held against its own promises, offline.
"""
