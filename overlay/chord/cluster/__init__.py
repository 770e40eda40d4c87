"""One cluster's replicated log, its heartbeats and its elections: Raft, over the members of a
cluster (P1, P4).

*Promises*: what a majority of the voters acknowledged is in the log of every primary that is
elected later; an epoch has at most one primary; a primary decides only while no other can lead
(docs/design/clusters.md).

*Called by*: `clusters.Clusters` (messages, and appends of the registry), `membership`, `recovery`
and `role_changes`.

*Read in this order*:

* `messages`: log entries, configurations, votes, heartbeats.
* `voter_log`, `journal`: a log in memory, the state file.
* `follower_log`: every voter's copy, and its votes. `leader_log`: what the primary does with its
  own (Raft dissertation, sections 3 and 4).
* `election_timeout`, `heartbeat`: how long silence may last, and the leader lease (section 6.4).
* `election`: pre-vote and vote (section 9.6; Phoenix section 2, broker failure).
"""
