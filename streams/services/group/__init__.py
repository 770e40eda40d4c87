"""Groups: what members and operators ask of a shard's leader.

*Promises*: those of `streams.groups`, where members and the messages are.

*Called by*: `streams.machines` builds `GroupServer`.

*Read in this order* (what the log says of groups is folded by `streams.log.group_state`):

* `window`: the rows that are found and not done with, and which of them comes next.
* `member`: what a leader knows of a member. `delivery`: one group at one shard.
* `group_log`: what groups write. `confirmation`: whether a leader is still one, of which order by key
  makes use.
* `shard_groups`: all groups of one shard. `group_server`: all such shards.
"""
