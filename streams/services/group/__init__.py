"""Groups at a shard's leader: it leases rows to members, and writes their answers to the log.

*Promises*: those of `streams.programs.group`, where members and the messages are.

*Called by*: `streams.machines` builds `GroupServer`; members' nodes and operators send messages.

    groups = server.shard(message.shard)      # ShardGroups; None: this node does not lead the shard
    delivery.join(member, held)               # the leases of a former leader that continue
    delivery.scan(budget)                     # matching rows enter the window
    delivery.give()                           # leases to members that have room
    delivery.settle(member, answers, True)    # acknowledged, returned, rejected, extended
    entries, buried = delivery.flush()        # runs of done rows, and dead letters, for the log

*Read in this order* (`streams.log.group_state` folds the groups' entries in the log):

* `window`: the rows that are found and not done, and their order.
* `delivery`: one group at one shard, with its members and its way through the log.
* `shard_members`: all groups of one shard: who joins and leaves, what is leased and written, and
  whether the leader is still the leader, which groups with a key have to know.
* `shard_groups`: what operators ask of these groups and change; all such shards.
"""
