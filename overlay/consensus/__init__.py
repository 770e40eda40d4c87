"""The rules of a replicated log: Raft, as far as it is the same for every log here.

*Promises*: any two quorums have a voter in common; a vote is given once in an epoch; a leader
commits entries by counting only from the first of its own epoch on; the voters change so that the
quorums before and after a change have a voter in common. Whoever keeps to these rules keeps what is
committed (Ongaro, *Consensus: bridging theory and practice*, 3.6; here "the dissertation").

*Called by*: `overlay.chord.cluster`, the log of a cluster's registry, and `streams.shard`, a
shard's log. They have two loops, for the reasons in docs/design/two-logs.md; what is decided in
both is decided here. There is no IO, no clock, no message, and no notion of clusters, shards or
disks: entries are numbers, voters are peers, and times are what the caller's clock says.

*Read in this order*:

* `quorum`: majorities, and what a quorum has reached.
* `votes`: who gets a vote, and who may still act on one.
* `tracker`: what a leader knows of each follower and of all, and what follows: what is committed,
  whether voters may change.
* `durability`: what waits for the disk.

*Words*: a *position* is (epoch of the last entry, its number); the first entry has number 1, an
empty log is at (0, 0). Of two logs the one with the higher position is *further*. An *epoch* is
Raft's term, a *leader* leads in one epoch, a *candidate* wants to, *followers* are all others that
have the log, and the *voters* are those that count. (A cluster's leader is its *primary*, as in
Phoenix; a shard's voters are its *replicas*.)

A leader's use::

    tracker = Tracker(me, first=log.end + 1)  # its own epoch begins with the next entry
    tracker.change(log.append(voters))  # which says who votes
    ...
    tracker.followers[sender].acknowledge(number)  # a follower has it on disk
    committed = max(committed, tracker.committable(voters, own=log.durable))
    if tracker.may_change(committed):
        tracker.check_change(voters, (*voters, another))
        tracker.change(log.append((*voters, another)))

and a voter's::

    if may_vote(vote, epoch, candidate) and position >= mine:
        store(vote), then answer
"""
