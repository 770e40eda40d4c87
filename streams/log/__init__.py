"""The log of one shard: bytes in, bytes out.

*Promises*: `chunk.read` returns a chunk as `chunk.pack` made it, or nothing; a chunk belongs to one
log only, by the SHA-256 of the chunk before it; recovery distinguishes a torn tail from damage, and
takes neither for data (docs/design/streams.md).

*Called by*: `streams.shard`, which adds chunks; `canopy stream verify`; programs that prove
receipts.

    chunk = pack(EVENTS, epoch, log.end, log.next_offset, count, time, join_batches(heads, rows))
    line = log.add(chunk)           # its place: line.segment, line.at
    state.apply(chunk)              # producers, consumers, groups, replicas, the floor
    log.before_offset(offset)       # the chunk at which to begin to read for a row
    recover(shard, names, read)     # log and state of a folder, with its holes

*Read in this order*:

* `chunk`: the unit that is written, replicated and hashed. `batches`: the rows of a chunk of
  events. `zones`: their least and greatest values, attribute by attribute.
* `state`: the fold of the log, with which each segment begins: producers, durable consumers,
  replicas, floors. Its parts: `group_state`, `half_state`, `origins`, `lost_rows`. `runs`: sets of
  numbers, in `group_state` and `origins`.
* `table`: the newest row of each key.
* `shard_log`: a shard's chunks and segments in memory; places by number, offset and time.
* `recovery`: a folder read at start, with its holes and its torn tail.
* `verify`: the verification of a whole folder, offline, and of a producer's receipt.
* `names`: of shards, forks and rows. `writers`: who may append.
"""
