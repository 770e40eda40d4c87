"""The trace schema: one flat record per step of an event, a walk or a subscription.

A trace file is JSON lines under ``date=YYYY-MM-DD/node=ID/``. Every line is an object with the
common fields and those of its ``kind``; other fields are left out. The first record of a file has
the kind ``file`` and no number and no hybrid logical clock. The Spark
job reads all kinds through one explicit schema (`FIELDS`), so that a record of a newer version
with more fields still reads, and a line that does not fit is counted as corrupt.

An **event** is named by its identity ``publisher.incarnation.sequence``; the ``id`` is the user's
own. Times are seconds since 1970 by the node's wall clock, stamped by the writer.
"""

from __future__ import annotations

from typing import Final

VERSION: Final = 3  # incremented when a kind or field changes its meaning, not for new fields

READABLE: Final = (2, 3)
"""Versions of records that are read. Version 2 has a `match` record for each event and virtual node
without an interested node, version 3 counts these (`unmatched`)."""

MEANINGS: Final[dict[str, tuple[str, str]]] = {
    # common to all
    "v": ("int", "version of the schema, 3"),
    "time": ("double", "seconds since 1970, by the node's wall clock"),
    "hlc": ("long", "the node's hybrid logical clock, nanoseconds"),
    "node": ("string", "who wrote this"),
    "run": ("long", "which of the node's processes: its incarnation"),
    "n": ("long", "number of the record in its run, from 1"),
    "kind": ("string", "the name of the record's kind"),
    # what it is about
    "event": ("string", "identity of an event"),
    "id": ("string", "the user's id of an event, as a string"),
    "subscription": ("string", "identity of a subscription"),
    "name": ("string", "the user's name of a subscription or node"),
    "selector": ("string", "the selector's text"),
    "tree": ("string", "JSON text: the selector's parsed tree (matching's JSON form)"),
    "level": ("int", "a subscription's latency level: 1 the most urgent; 0, or absent: none"),
    "permitted": (
        "string",
        "JSON text: the tree of what the policy leaves of the selector of a tenant's "
        "subscription; absent at a node without a tenant",
    ),
    "attributes": (
        "string",
        "JSON text: an object with all attributes of the event; with `trace.redact` an array of "
        "their names",
    ),
    "digest": (
        "long",
        "of an event's content: the CRC-32 of its attributes as JSON with sorted names, without "
        "spaces, times 2^31, and that of its payload without the last bit",
    ),
    "attribute": ("string", "the attribute (tree) this step belongs to"),
    "walk": ("string", "identity of a walk"),
    "peer": ("string", "the other node of this step"),
    # the step itself
    "hop": ("int", "counted from 1 along this walk or tree path"),
    "hops": ("int", "how many in all"),
    "by": ("string", "'walk' or 'ring': how an attribute's tree was found"),
    "lo": ("string", "the beginning of the virtual node's interval, as text"),
    "hi": ("string", "the end of the virtual node's interval, as text"),
    "recipients": ("int", "how many nodes are interested"),
    "epoch": ("long", "of the cluster or the shard; its high 32 bits count forks"),
    "version": ("long", "of a partition map"),
    "latency_ms": ("double", "from the accepted publish to the hand-over at the subscriber"),
    "size": ("int", "bytes of the payload, or number of things"),
    "data_messages": ("long", "counters of `stop`"),
    "other_messages": ("long", "likewise"),
    "bytes": ("long", "sent on links"),
    "address": ("string", "where the node listens"),
    "routing": ("string", "`pivot` or `counting`"),
    "reason": (
        "string",
        "text for people; of `map`: `created`, `full`, `busy`, `slow`, `idle`, `moved`, "
        "`restored`, `silent` (attribute trees)",
    ),
    "what": ("string", "the kind of an incident"),
    "cpu": (
        "double",
        "percent of one processor that the process used since its last health record",
    ),
    "memory": ("double", "percent of the machine's memory in use"),
    "disk": ("double", "percent of the data folder's file system in use"),
    "resident": ("long", "bytes of memory that the process has"),
    "clients": ("int", "programs that are connected"),
    "queue": ("int", "events, visits and deliveries that are not finished"),
    "late_ms": (
        "double",
        "by which the node's timers were late at most since its last health record",
    ),
    "round_trip_ms": ("double", "the median of its links"),
    "resent": ("int", "batches that were sent again since the start"),
    "links": ("int", "links that are connected"),
    "unread": ("double", "seconds before it for which no program was there to read"),
    "sample": ("double", "the share of events that this node keeps at most"),
    "share": (
        "double",
        "the share of this node's own events that is traced (`sampling`); of the rows that it "
        "commits (`row`), or handed out between two offsets (`consume`), the share of which it "
        "keeps records; absent where that is all",
    ),
    "first": (
        "long",
        "the number of the event from which on `share` holds, until another record says so",
    ),
    "overlay": ("string", "its name"),
    "part": ("int", "number of the file in its run, from 1"),
    "written": ("long", "records of this run written before"),
    "lost": ("long", "records of this run lost before"),
    "shard": ("string", "of a stream: the stream's id and the shard's number"),
    "offset": ("long", "of a row in its shard, or of the first one"),
    "until": ("long", "the offset behind the last one"),
    "published": ("long", "events that this run of the node published, sampled or not"),
    "subscribed": ("long", "subscriptions that it made"),
    "client": (
        "int",
        "the node's number for a program; in `drop`: which does not read, so that what was "
        "delivered is dropped, for one `subscription` or for all of its own",
    ),
}
"""By the name of each field its Spark SQL type and what it means."""

FIELDS: Final[dict[str, str]] = {name: kind for name, (kind, _) in MEANINGS.items()}
"""Name of every field and its Spark SQL type."""

COMMON: Final = ("v", "time", "hlc", "node", "run", "n", "kind")
"""The fields that records of all kinds have."""

KINDS: Final[dict[str, tuple[str, ...]]] = {
    "file": ("overlay", "part", "sample", "written", "lost"),  # the first of each file
    "start": ("address", "routing", "name"),
    "ready": (),
    # what the node measured of itself and its machine, every `trace.health` seconds (T6); what a
    # system does not say is left out
    "health": (
        *("cpu", "memory", "disk", "resident", "clients"),
        *("queue", "late_ms", "round_trip_ms", "resent", "links"),
    ),
    "subscribe": ("subscription", "name", "selector", "tree", "permitted", "level", "client"),
    "suback": ("subscription",),  # matching events published from now on are expected
    "confined": ("subscription", "permitted"),  # another policy holds from now on
    "unsubscribe": ("subscription", "unread"),  # unread: since the program was lost
    "sampling": ("first", "share"),  # the share of its events that is traced has changed
    "publish": ("event", "id", "attributes", "size", "digest"),
    # an event that was not accepted; with `event` one that a host refused after it was published
    "refused": ("event", "reason"),
    # CRAWL (C3, C4, C10): one walk may carry several attributes, each has its own records
    "walk_start": ("walk", "attribute", "hops"),  # hops: the limit
    "walk_hop": ("walk", "attribute", "hop", "peer"),  # this node passes it on to peer
    "walk_blocked": ("walk", "attribute", "hop"),
    "walk_recovered": ("walk", "attribute", "hop", "peer"),  # goes on from peer, half the limit
    "walk_hit": ("walk", "attribute", "hop", "peer"),  # peer: the access point found
    "walk_miss": ("walk", "attribute", "hop"),
    # the result of the search, at the publisher
    "located": ("attribute", "by", "hops"),  # found, by walk or ring
    "absent": ("attribute", "hops"),  # the owner says that there are no subscriptions to it
    # the tree (C7): a data-plane message that carries an event to or within a tree
    "visit": ("event", "attribute", "hop", "peer"),  # sent to peer, hop-th message of this event
    # that a virtual node has found interested nodes; and for how many events (size) those of an
    # attribute have found none, since the record before
    "match": ("event", "attribute", "lo", "hi", "version", "recipients"),
    "unmatched": ("attribute", "size"),
    "forward": ("event", "attribute", "peer", "hop"),  # host -> interested node
    "arrive": ("event", "peer", "attribute", "hop"),  # at the interested node
    "duplicate": ("event", "peer"),
    "recheck_failed": ("event", "peer"),  # arrived, and no local subscription matches
    "deliver": (
        *("event", "id", "subscription", "latency_ms", "attribute", "hops", "lo", "hi"),
        "digest",
    ),
    # given up: for the node `peer`; or with `client` what had been delivered to a program that does
    # not read: for one `subscription`, or for all of the program's
    "drop": ("event", "peer", "client", "subscription", "reason", "size"),
    # streams: rows that are acknowledged to a program (size: how many) and that a leader has
    # committed; rows that a durable consumer (name; subscription: one program's start of it) was
    # handed, and the offsets that it has confirmed
    "append": ("shard", "offset", "size", "epoch"),
    "row": ("event", "shard", "offset", "epoch", "attributes", "share"),
    "take": ("event", "shard", "offset", "name", "subscription"),
    "consume": ("shard", "offset", "until", "name", "subscription", "selector", "tree", "share"),
    # the overlay
    "cluster": ("epoch", "name", "reason"),  # founded, joined, split, role changed …
    "map": ("attribute", "epoch", "version", "size", "reason"),  # a partition map changed, and why
    "link": ("peer", "reason"),  # up, down
    # losses, elections, recoveries as one node saw them (overlay/incidents.py); name: the cluster
    "incident": ("what", "peer", "name", "epoch", "reason"),
    # published and subscribed: how many events and subscriptions it has numbered in this run
    "stop": (
        *("data_messages", "other_messages", "bytes", "reason", "lost"),
        *("published", "subscribed"),
    ),
}
"""The kinds of records, with their fields beside the common ones."""

ROW_KINDS: Final = ("row", "take")
"""The kinds of records of single rows. A node keeps a share of each, whatever share it keeps of
events (canopy/traces/writer.py)."""
