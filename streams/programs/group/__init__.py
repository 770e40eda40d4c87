"""Consumer groups: programs that share the rows of a shard, each row for one of them at a time.

*Promises*: each row that the group's selector matches is acknowledged or a dead letter, once, in
the log; the floor passes no row that is neither; of rows that are alike in the attribute by which a
group is ordered one is with a member at a time, the lowest offset first; who comes with other
options than the group's is refused (docs/design/streams.md#groups).

*Called by*: `streams.machines` builds `Members`; programs reach it by commands. What operators ask
about groups is in `streams.programs.questions`, what a shard's leader does in
`streams.services.group`.

    members.attach(client, AttachGroup(1, "orders", "billing"))     # a session with each leader
    members.take(client, TakeRows(2, 1, most=10))                   # RowsTaken, when rows come
    members.settle(client, SettleRows(3, 1, rows))                  # RowsSettled, when committed
    members.detach(client, DetachGroup(4, 1))                       # its rows go to others

*Read in this order*:

* `messages`: between a member's node and a shard's leader.
* `options`: the options of groups: what a program asks for, what no group can have, what can be
  changed.
* `members`: all memberships of the node's programs, `streams.access.attachments`, each with its
  leases at each shard.
"""
