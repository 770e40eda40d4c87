"""Consumer groups: programs that share the rows of a shard, each row for one of them at a time.

*Promises*: each row that the group's selector matches is acknowledged or a dead letter, once, in
the log; the floor passes no row that is neither; of rows that are alike in the attribute by which a
group is ordered one is with a member at a time, the lowest offset first; who comes with other
options than the group's is refused (docs/design/streams.md#groups).

*Called by*: `streams.machines` builds `Members` and `GroupCommands`, for the node's programs. What
a shard's leader does is in `streams.services.group`.

*Read in this order*:

* `messages`: between a member's node and a shard's leader.
* `founding`: the options of groups, and which can be changed.
* `seat`: a program's node: one shard of a membership, for which it has a session with the leader
  (`streams.access`). `members`: all of them, and the programs.
* `group_commands`: what operators ask.
"""
