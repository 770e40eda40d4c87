"""One cluster's replicated log, its heartbeats and its elections: Raft, over the members of a
cluster (P1, P4). What both logs of a node decide alike is in `overlay.consensus`.

*Promises*: what a majority of the voters acknowledged is in the log of every primary that is
elected later; an epoch has at most one primary; a primary decides only while no other can lead
(docs/design/clusters.md).

*Called by*: `clusters.Clusters` (messages, and appends of the registry), `membership`, `recovery`
and `role_changes`.

*Read in this order*:

* `messages`: log entries, configurations, votes, heartbeats.
* `journal`: a log in memory, the state file.
* `follower_log`: every voter's copy, and its votes. `leader_log`: what the primary does with its
  own (Raft dissertation, sections 3 and 4).
* `heartbeat`: how long silence may last, and the leader lease (section 6.4).
* `election`: pre-vote and vote (section 9.6; Phoenix section 2, broker failure).

How `clusters.Clusters` puts them together, and appends::

    journal = Journal(port, restored)
    log = FollowerLog(role, journal, settings.cluster)
    heartbeat = Heartbeat(settings.election, role, log, journal, health)
    leader_log = LeaderLog(role, log, departures, heartbeat, settings.cluster.size)
    election = Election(settings.election, role, log, heartbeat, health)
    election.report_to(role_changes)  # which calls `leader_log.lead` when one is won
    ...
    if heartbeat.has_lease():
        index = leader_log.append((entry,))  # `Committed` follows, or another primary
"""
