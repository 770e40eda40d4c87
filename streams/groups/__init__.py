"""Consumer groups: programs that share the rows of a shard, each row for one of them at a time.

*Promises*: each row that the group's selector matches is acknowledged or a dead letter, once, in
the log; the floor passes no row that is neither; of rows that are alike in the attribute by which a
group is ordered one is with a member at a time, the lowest offset first; who comes with other
options than the group's is refused (docs/design/streams.md#groups).

*Called by*: `streams.machines` builds `GroupServer`, for shards that the node leads, and `Members`
and `GroupCommands`, for its programs.

*Read in this order*:

* `messages`: between a member's node and a shard's leader. (What the log says of groups is folded
  by `streams.log.group_state`.)
* `window`: the rows that are found and not done with, and which of them comes next.
* `member`: what a leader knows of a member. `delivery`: one group at one shard.
* `group_log`: what groups write. `founding`: their options, and which can be changed.
  `confirming`: whether a leader is still one, of which order by key makes use.
* `shard_groups`: all groups of one shard, what members and operators ask. `group_server`: all such
  shards.
* `seat`: a program's node: one shard of a membership. `members`: all of them, and the programs.
  `group_commands`: what operators ask.
"""
