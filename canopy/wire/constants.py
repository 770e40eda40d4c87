"""The numbers of `canopy.wire` that are no settings, which are in `canopy.wire.config`.

Each says where it comes from. *Guess* means that it was never measured; then it says what would
measure it. Times are seconds, sizes bytes.
"""

from __future__ import annotations

from typing import Final

# --- connections between nodes (transport/, driver) ---

CONNECTIONS: Final = 4_096
"""Connections of one process, both directions; more are refused. Guess; to be measured by the
memory of a node that this many others have dialled."""

STRANGERS: Final = 512
"""Accepted connections that are not authenticated, of all addresses together: some 20 MB. One more
ends the oldest of them, so that in a flood from many addresses a newcomer has a place for as long
as so many others take to come, which is longer than a handshake takes."""

STRANGER_REASON: Final = "too many others came before it had authenticated itself"

KEY_CONNECTIONS: Final = 4
"""Accepted connections of one key at a time. A node dials another once, and again when it believes
that the connection is broken."""

KEY_REASON: Final = f"more than {KEY_CONNECTIONS} connections of one key"

SHARED_CONNECTIONS: Final = CONNECTIONS // 4
"""Accepted connections of one address (but this machine's), and of one tenant, at a time: whoever
has ids by hundreds leaves room for others. More nodes than stand behind one address translator that
all want links with one node. Guess."""

TICK_LEAST: Final = 0.001
"""Between two ticks with no other input in between: bounds what a timer that is always due can
cost. Where there was other input, or the tick itself took longer, the next tick may follow at once:
a host with a backlog works in its ticks (overlay/upper_tree/host/visit_scheduler.py)."""

READ_SIZE: Final = 256 * 1024
"""Asked for in one receive, of a node or a program, and handled in one turn: what has come while a
process was busy. A batch of 256 events has 64 to 80 KiB; in pieces of 32 KiB each of them woke its
reader three times."""

GREETING_SIZE: Final = 32 * 1024
"""Asked for in one receive of somebody who is not authenticated."""

INSECURE_LOG: Final = 3600.0
"""Seconds between two warnings of a node that others can reach, and that has no keys."""

RECHECK: Final = 2.0
"""Seconds between two looks at the certificates of live connections: one may expire."""

QUEUE_LIMIT: Final = 16 << 20
"""Bytes queued for one connection. Links grant each other 4 MiB of credit (`LinkSettings.window`),
so a peer that lets more than this wait violates the protocol."""

SEND_TIMEOUT: Final = 10.0
"""A connection whose peer accepts no byte for so long is closed. Longer than
`LinkSettings.dead_after`, so that the failure detector, not this, decides about a slow peer. Guess;
to be measured by how long a loaded peer's socket stays full."""

LINGER: Final = 2.0
"""How long after `close` what was written before may still leave. Guess; to be measured by how long
a `Bye` takes to a loaded peer."""

BODY_LIMIT: Final = 1 << 20  # bytes of a batch's body after decompression (docs/reference/wire.md)

HANDSHAKE_LIMIT: Final = 64 * 1024
"""Bytes of the first frame of a connection (docs/reference/wire.md)."""

FRAME_LIMIT: Final = 1 << 20  # bytes of any later frame (docs/reference/wire.md)

CONTROL_LIMIT: Final = 8 << 20
"""Bytes of a frame of the control socket: programs of the same user publish thousands of events at
once. Guess; to be measured by publishing throughput against the size of a command."""

WRITE_PIECES: Final = 1_024  # buffers of one `writev`: what Linux and macOS accept (IOV_MAX)

# --- the control socket ---

CLIENTS: Final = 256
"""Default of `clients.programs`. Guess; to be measured by the memory of so many clients that do not
consume (each may have `clients.queue` waiting)."""

RESUME: Final = 30.0
"""Default of `clients.resume`: longer than a program takes to start again, or than its library
waits between attempts (8 s); as long as a lease lasts half. Guess; to be measured by how long
programs that come back were away."""

PARKED: Final = 64
"""Default of `clients.parked`. Guess; each may have `clients.queue` waiting, as a client that does
not consume."""

SESSION_BYTES: Final = 16  # of a session's name, at random: it cannot be guessed

BACKLOG: Final = 128
"""Programs that the system lets wait for `accept`. Guess; a node accepts them within a turn."""

LONG_SELECTOR: Final = 1_024
"""Characters of a selector that is compiled in steps, before it gets a turn of its own: a
shorter one takes up to 4 ms (measured)."""

TURNS_TOGETHER: Final = 32
"""Commands of one program after which others are heard: what is read at once may be thousands that
are answered at once (`GetStatus`). Guess; to be measured by a node's latency while a program asks
so."""

REGISTERED_TOGETHER: Final = 128
"""Subscriptions and ends of some that are one turn of the node: what is stored for them is durable
with one fdatasync, and other inputs are heard between two turns. By the longest turn (`canopy
status`) in `bench.node.subscribing`."""

CLIENT_REQUESTS: Final = 1_024
"""Unanswered requests of one client, after which no more is read from it: eight turns of
subscriptions, so that the next are there while a registration goes around. By subscriptions per
second in `bench.node.subscribing`."""

CLIENT_PUBLISHES: Final = 16
"""Unanswered publications among them: enough to hide a reply's way. Guess; to be measured by events
per second against the publications ahead."""

CLIENT_APPENDS: Final = 8_192
"""Events of unanswered appends to streams, after which no more is read. An append waits for the
disks of several nodes, so that more have to be under way than publications; their bytes are
bounded by the node's producers (streams/programs/producer). By rows per second in
`bench.streams.peers`."""

CLIENT_EVENTS: Final = 1_024
"""Events of unanswered publications, after which no more is read. Guess; to be measured as above,
against the memory of a node with many publishers."""

CLIENT_FRAME: Final = 256 * 1024
"""Bytes of deliveries in one frame. Guess; to be measured by deliveries per second against the time
that a small reply waits behind such a frame."""

# --- the process ---

SETTLE: Final = 2.0
"""How long a process that leaves waits for its last frames (Bye) to be written. Guess; to be
measured by the time from *left* of a node to its last frame's arrival at a loaded peer."""

END_MOST: Final = 15.0
"""Seconds after `drain_timeout` until a process that has not ended by itself is ended: once in some
hundred trials on an overloaded machine one did not, for a reason that was not found. Several times
`SETTLE`."""

TELL_OTHER: Final = 2.0
"""How long a process that stops, since a later one has its node's id, tries to tell that one.
Guess; a dial on a slow network."""

TRACE_FLUSH: Final = 0.5
"""Between two writes of the trace buffer: what a killed process may lose. Guess; to be measured by
the share of a node's turns that wait for the disk."""

YOUNG_OBJECTS: Final = 2_000
"""New objects after which Python looks for cycles among them, and freezes the others. A node keeps
some twenty objects of an event that comes alone, to answer `canopy why`: with 6,000, looked at two
or three times each, collections of 5 to 30 ms came every two seconds at 1,000 events per second,
which was the slowest hundredth of deliveries. The default of 700 is a tenth of a batch of
events."""

WARM_CHECK: Final = 1.0
"""Between two checks whether the compiled matching engine is wanted. Guess; to be measured by the
matching time of an index that has just become large."""

# --- the disk of shards (shards/) ---

SHARDS_OPEN: Final = 256
"""Shards whose newest segment is kept open; of others it is opened for each write after a pause.
Guess; to be measured by appends per second at a node with more shards that are busy."""

SHARDS_CLOSE: Final = 5.0
"""How long a process that ends waits for what its shards have asked of their disk. Nothing of it
was acknowledged. Guess; to be measured by the longest fdatasync of a loaded disk."""

# --- exit codes of `canopy node` beside those of all commands (docs/reference/commands.md) ---

FOLDER_REFUSED: Final = 6
"""The data folder cannot be used: no room, in use, or its files do not belong together."""

DISK_FAILED: Final = 7
"""The node stopped, since its folder was deleted or does not take what is written."""

FOLDER_COPIED: Final = 8
"""Another process has this node's id: its data folder was copied."""

# --- the data folder, the configuration, the log ---

START_ROOM: Final = 256 * 1024
"""Bytes that must be free for a start: a file system may have room for a few bytes in a block that
it has already given out, and a node that starts on them stops at its first vote. Guess; to be
measured by what a new member of a cluster stores."""

FOLDER_CHECK: Final = 5.0
"""Between two looks whether the data folder is still there, besides those at each sync: a node that
stores nothing would not notice. Guess; a look takes some microseconds."""

HEALTH_CHECK: Final = 2.0
"""Between two looks at the health file, which is written once a minute (`canopy trace health
--follow`). A look takes some microseconds."""

HEALTH_FILE_LIMIT: Final = 4 * 1024 * 1024
"""Bytes of a health file: some 20,000 nodes. Guess; to be measured by how long reading it takes,
for which the node does nothing else."""

STATE_LIMIT: Final = 256 * 1024 * 1024
"""Bytes of stored records. Guess; to be measured by the time that a start with such a file
takes."""

SOCKET_PATH_LIMIT: Final = 107
"""Bytes of a Unix socket's path: `sun_path` of Linux has 108 with the closing zero, unix(7)."""

CONFIG_FILE_LIMIT: Final = 1 << 20
"""Bytes of a configuration file. Guess: far more than is needed."""

LOG_VALUE_LIMIT: Final = 2_000
"""Characters of one value in a log line, since reasons may come from a peer. Guess: a traceback of
three frames fits."""

# --- the directory ---

SEEK_SOON: Final = 2.0
"""Between two lookups of a node that has not found its way into the overlay. Guess; to be measured
by the time that a node with one dead seed takes to become ready."""

SEEK: Final = 60.0
"""Between two lookups of a node that is ready, and between two announcements of its own entries.
Guess; to be measured by how long two halves of a ring stay apart, against datagrams per node."""

FOUND_MOST: Final = 64
"""Addresses from the directory that become seeds: seeds are redialled for ever, so there must not
be many. Guess; to be measured by dials per second of a node whose seeds are all dead."""

NEAR_MOST: Final = 16
"""Addresses from the local network (`mdns`) that become seeds, as above. Guess; to be measured
likewise. One that is a member's leads to all others."""

ANNOUNCED_HOSTS: Final = 4
"""Addresses of one announcement on the local network: of both kinds, and of two interfaces."""

NEAR_ANSWER: Final = 1_000
"""Milliseconds for what belongs to an announcement to come. Guess; most announcements are whole."""

ENTRY_ADDRESSES: Final = 16
"""Addresses of one entry. Guess; to be measured by how many of them a joining node tries."""

THREAD_STOP_WAIT: Final = 1.0
"""How long to wait for the directory's thread to end; it is a daemon thread, so nothing is lost."""

BUCKET_SIZE: Final = 8
"""Kademlia's k: contacts per bucket and copies of a value. The paper's 20 is for millions of nodes
(Maymounkov and Mazières 2002, section 2.2); on loopback there are some dozens."""

PARALLEL_QUERIES: Final = 3  # Kademlia's alpha (Maymounkov and Mazières 2002, section 2.3)

CONTACT_TIMEOUT: Final = 0.3
"""Until a contact on loopback counts as dead; an answer takes about a millisecond. The library's
five seconds held up every lookup next to a dead contact."""

WELCOME_MOST: Final = 8
"""Values that are pushed to one new contact. Guess; to be measured by the bytes that one ping can
cause (without the bound: 1,001 datagrams from a node with 1,000 values)."""

DATAGRAM_LIMIT: Final = 8 * 1024 + 64
"""Bytes of a datagram; rpcudp sends none that is larger than 8 KiB and its header."""

STORED_VALUES: Final = 1_000
"""Values of others that a node stores. Guess; to be measured by the memory of a full store (values
are at most 1 KiB)."""

VALUE_LIMIT: Final = 1_024  # bytes of one stored value: `ENTRY_ADDRESSES` addresses

VALUE_AGE: Final = 300.0
"""After so long without being announced again a value is dropped: five times `SEEK`."""

# --- the directory where nodes have keys ---

RECORD_LIMIT: Final = 3_072
"""Bytes of one signed record: an address, and two certificates of some 450 bytes each; while a root
is replaced up to four."""

STORED_BYTES: Final = 1 << 20
"""Of all records that a node stores."""

RECORDS_OF_ENTRY: Final = 8
"""Nodes whose records of one entry are kept; of more those that were heard last."""

ENTRIES_OF_NODE: Final = 4
"""Entries of which one node's records are kept. Nodes use one (`discovery.RING`)."""

COOKIE_TERM: Final = 120.0
"""Seconds for which the same cookie is given to an address; it holds as long again."""

PROVEN_FOR: Final = 600.0
"""Seconds after which a node has to prove once more who it is."""

PROVEN_MOST: Final = 1_024
"""Addresses of which it is known which node is there."""

STRANGERS_PER_SECOND: Final = 100.0
"""Datagrams of all who show no cookie that are answered, with 37 bytes each: 4 kB/s. Also the
proofs that are looked at: a twentieth of a processor."""

CALLERS_PER_SECOND: Final = 50.0
"""Datagrams that are looked at of one address that shows its cookie (`accept_limits.whose`). A
lookup asks each node once or twice."""

LOCAL_CALLERS_PER_SECOND: Final = 500.0
"""The same for this machine, on which there may be some dozen nodes."""

CALLERS_MOST: Final = 4_096
"""Addresses whose datagrams are counted."""

REMOTE_CONTACT_TIMEOUT: Final = 1.0
"""`CONTACT_TIMEOUT` between machines: three round trips around the earth."""

CRAWL_MOST: Final = 64
"""Contacts that one lookup asks. Honest ones are found after some eight times the logarithm of the
number of nodes; a liar could name nearer ones without end."""

# --- telemetry ---

BUSIEST_PROCESSES: Final = 5
"""The processes of a sample, by processor time. Guess; to be measured by the events that a
subscriber of a desktop machine finds useful."""

FEED_PERIOD_LEAST: Final = 0.05
"""The shortest period of the feed; a sample of a machine with few processes takes 5 ms."""

FEED_PERIOD_MOST: Final = 86_400.0  # the longest period of the feed: a day

DISKS: Final = 16
"""Disks of a sample at most. Guess, as the next two; to be measured by the largest machines."""

INTERFACES: Final = 16  # network interfaces of a sample at most
CORES: Final = 256  # processor cores of a sample at most

SEALED: Final = "application/vnd.canopy.sealed"
"""The payload type of a sealed payload (`canopy.wire.keys.seals`): by it who has no key knows
one."""
