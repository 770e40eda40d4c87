"""The fixed numbers of `canopy.wire`; settings are in `canopy.wire.config`.

Each docstring says where the number comes from. *Guess* means that it was never measured; then the
docstring says how to measure it. Times are seconds, sizes bytes.
"""

from __future__ import annotations

import re
from typing import Final

# --- connections between nodes (transport/, driver) ---

CONNECTIONS: Final = 4_096
"""The most connections of one process, both directions; further ones are refused. Guess; to be
measured by the memory of a node that this many others have dialled."""

STRANGERS: Final = 512
"""The most accepted connections that are not authenticated, of all addresses together: some 20 MB.
One more closes the oldest of them. So in a flood from many addresses a newcomer keeps its place
until this many others have come, which takes longer than a handshake."""

STRANGER_REASON: Final = "too many others came before it had authenticated itself"

KEY_CONNECTIONS: Final = 4
"""The most accepted connections of one key at a time. A node dials another once, and again when it
takes the connection for broken."""

KEY_REASON: Final = f"more than {KEY_CONNECTIONS} connections of one key"

SHARED_CONNECTIONS: Final = CONNECTIONS // 4
"""The most accepted connections of one address (other than this machine's), and of one tenant, at a
time, so that an owner of hundreds of ids leaves room for others. More than the nodes behind one
address translator that have links with one node. Guess."""

TICK_LEAST: Final = 0.001
"""The shortest pause between two ticks without other input: bounds the cost of a timer that is
always due. After other input, or a tick that took longer, the next tick may follow at once: a host
with a backlog works in its ticks (overlay/upper_tree/host/visit_scheduler.py)."""

READ_SIZE: Final = 256 * 1024
"""The most bytes of one receive, from a node or a program, which are handled in one turn: all that
has arrived while a process was busy. A batch of 256 events has 64 to 80 KiB; read in pieces of 32
KiB it woke its reader three times."""

GREETING_SIZE: Final = 32 * 1024
"""The most bytes of one receive from a peer that is not authenticated."""

INSECURE_LOG: Final = 3600.0
"""The pause between two warnings of a node that other machines can reach and that has no keys."""

RECHECK: Final = 2.0
"""The pause between two checks of the certificates of live connections, which may expire."""

QUEUE_LIMIT: Final = 16 << 20
"""The most bytes queued for one connection. Links grant each other 4 MiB of credit
(`LinkSettings.window`), so a peer for which more is queued violates the protocol."""

SEND_TIMEOUT: Final = 10.0
"""A connection whose peer accepts no byte for this time is closed. Longer than
`LinkSettings.dead_after`, so that the failure detector decides about a slow peer. Guess; to be
measured by how long a loaded peer's socket stays full."""

LINGER: Final = 2.0
"""Seconds in which written bytes may still leave after `close`. Guess; to be measured by how long a
`Bye` takes to a loaded peer."""

BODY_LIMIT: Final = 1 << 20  # bytes of a batch's body after decompression (docs/reference/wire.md)

HANDSHAKE_LIMIT: Final = 64 * 1024
"""The largest first frame of a connection (docs/reference/wire.md)."""

FRAME_LIMIT: Final = 1 << 20  # bytes of any later frame (docs/reference/wire.md)

CONTROL_LIMIT: Final = 8 << 20
"""The largest frame of the control socket: programs of the same user publish thousands of events at
once. Guess; to be measured by publishing throughput against the size of a command."""

WRITE_PIECES: Final = 1_024  # buffers of one `writev`: what Linux and macOS accept (IOV_MAX)

# --- the control socket ---

SESSION_BYTES: Final = 16  # of a session's name, at random: it cannot be guessed

BACKLOG: Final = 128
"""The most programs that wait for `accept`. Guess; a node accepts them within a turn."""

LONG_SELECTOR: Final = 1_024
"""The longest selector, in characters, that is compiled within a turn: it takes up to 4 ms
(measured). A longer one is compiled in steps before its turn."""

TURNS_TOGETHER: Final = 32
"""The most commands of one program that are handled before other inputs: one read may have
thousands that are answered at once (`GetStatus`). Guess; to be measured by a node's latency while a
program asks so."""

REGISTERED_TOGETHER: Final = 128
"""The most subscriptions and unsubscriptions in one turn of the node. Their records become durable
with one fdatasync, and other inputs are handled between two turns. Chosen by the longest turn
(`canopy status`) while a program registered 20,000 selectors."""

CLIENT_REQUESTS: Final = 1_024
"""The number of unanswered requests at which the node stops reading from a client: eight turns of
subscriptions, so that the next are there while a registration goes around. Chosen by subscriptions
per second (docs/lab/performance.md#subscribing)."""

CLIENT_PUBLISHES: Final = 16
"""The number of unanswered publications at which the node stops reading from a client: enough to
hide the latency of a reply. Guess; to be measured by events per second against the publications
ahead."""

CLIENT_APPENDS: Final = 8_192
"""The number of events in unanswered appends at which the node stops reading from a client. An
append waits for the disks of several nodes, so more are under way than publications; their bytes
are bounded by the node's producers (streams/programs/producer). Chosen by rows per second in
`bench.streams.peers`."""

CLIENT_EVENTS: Final = 1_024
"""The number of events in unanswered publications at which the node stops reading from a client.
Guess; to be measured as `CLIENT_PUBLISHES`, against the memory of a node with many publishers."""

CLIENT_FRAME: Final = 256 * 1024
"""The size of deliveries in one frame. Guess; to be measured by deliveries per second against the
time that a small reply waits behind such a frame."""

# --- the process ---

SETTLE: Final = 2.0
"""Seconds for which a leaving process waits until its last frames (Bye) are written. Guess; to be
measured by the time from *left* of a node to its last frame's arrival at a loaded peer."""

END_MOST: Final = 15.0
"""Seconds after `drain_timeout` at which a process that has not ended by itself is ended: once in
some hundred trials on an overloaded machine one did not, for an unknown reason. Several times
`SETTLE`."""

TELL_OTHER: Final = 2.0
"""Seconds for which a process that stops because another process has its node's id tries to tell
that process. Guess; a dial on a slow network."""

TRACE_FLUSH: Final = 0.5
"""The pause between two writes of the trace buffer: a killed process may lose this much. Guess; to
be measured by the share of a node's turns that wait for the disk."""

YOUNG_OBJECTS: Final = 2_000
"""The number of new objects after which Python looks for cycles among them, and freezes the others.
A node keeps some twenty objects of an event that arrives alone, to answer `canopy why`. With 6,000,
looked at two or three times each, collections of 5 to 30 ms came every two seconds at 1,000 events
per second and made the slowest hundredth of deliveries. The default of 700 is a tenth of a batch of
events."""

WARM_CHECK: Final = 1.0
"""The pause between two checks whether the compiled matching engine is needed. Guess; to be
measured by the matching time of an index that has just become large."""

# --- the disk of shards (shards/) ---

SHARDS_OPEN: Final = 256
"""The number of shards whose newest segment is kept open; for others it is opened for each write
after a pause. Guess; to be measured by appends per second at a node with more busy shards."""

SHARDS_CLOSE: Final = 5.0
"""Seconds for which an ending process waits for the pending disk operations of its shards. None of
them was acknowledged. Guess; to be measured by the longest fdatasync of a loaded disk."""

# --- exit codes of `canopy node` beside those of all commands (docs/reference/commands.md) ---

FOLDER_REFUSED: Final = 6
"""Exit code: the data folder cannot be used: no room, in use, or its files do not belong
together."""

DISK_FAILED: Final = 7
"""Exit code: the node stopped, since its folder was deleted or cannot be written."""

FOLDER_COPIED: Final = 8
"""Exit code: another process has this node's id: its data folder was copied."""

# --- the data folder, the configuration, the log ---

START_ROOM: Final = 256 * 1024
"""Bytes that must be free at a start. A full file system may have room for a few bytes in a block
that is already allocated, and a node that starts there stops at its first vote. Guess; to be
measured by the records of a new member of a cluster."""

FOLDER_CHECK: Final = 5.0
"""The pause between two checks that the data folder still exists, besides those at each sync: a
node that stores nothing would not notice. Guess; a check takes some microseconds."""

HEALTH_CHECK: Final = 2.0
"""The pause between two checks of the health file, which is written once a minute (`canopy trace
health --follow`). A check takes some microseconds."""

HEALTH_FILE_LIMIT: Final = 4 * 1024 * 1024
"""The largest health file: some 20,000 nodes. Guess; to be measured by how long reading it takes,
for which the node does nothing else."""

STATE_LIMIT: Final = 256 * 1024 * 1024
"""The largest file of stored records. Guess; to be measured by the time that a start with such a
file takes."""

SOCKET_PATH_LIMIT: Final = 107
"""The longest path of a Unix socket: `sun_path` of Linux has 108 bytes with the closing zero,
unix(7)."""

CONFIG_FILE_LIMIT: Final = 1 << 20
"""The largest configuration file. Guess: far more than is needed."""

LOG_VALUE_LIMIT: Final = 2_000
"""The most characters of one value in a log line, since reasons may come from a peer. Guess: a
traceback of three frames fits."""

# --- the directory ---

SEEK_SOON: Final = 2.0
"""The pause between two lookups of a node that has not found its way into the overlay. Guess; to be
measured by the time that a node with one dead seed takes to become ready."""

SEEK: Final = 60.0
"""The pause between two lookups of a node that is ready, and between two announcements of its own
entries. Guess; to be measured by how long two halves of a ring stay apart, against datagrams per
node."""

FOUND_MOST: Final = 64
"""The most addresses from the directory that are seeds at a time: seeds are redialled for ever.
Guess; to be measured by dials per second of a node whose seeds are all dead."""

NEAR_MOST: Final = 16
"""The most addresses from the local network (`mdns`) that become seeds. One address of a member
leads to all others. Guess; to be measured as `FOUND_MOST`."""

ANNOUNCED_HOSTS: Final = 4
"""The most addresses of one announcement on the local network: IPv4 and IPv6, of two interfaces."""

NEAR_ANSWER: Final = 1_000
"""Milliseconds to wait for the missing records of an announcement. Guess; most announcements are
complete."""

ENTRY_ADDRESSES: Final = 16
"""The most addresses of one entry. Guess; to be measured by how many of them a joining node
tries."""

THREAD_STOP_WAIT: Final = 1.0
"""Seconds to wait for the directory's thread to end; it is a daemon thread, so nothing is lost."""

BUCKET_SIZE: Final = 8
"""Kademlia's k: contacts per bucket and copies of a value. The paper's 20 is for millions of nodes
(Maymounkov and Mazières 2002, section 2.2); on loopback there are some dozens."""

PARALLEL_QUERIES: Final = 3  # Kademlia's alpha (Maymounkov and Mazières 2002, section 2.3)

CONTACT_TIMEOUT: Final = 0.3
"""Seconds that a contact on loopback may take to answer before it counts as dead; an answer takes
about a millisecond. The library's five seconds held up every lookup next to a dead contact."""

WELCOME_MOST: Final = 8
"""The most values that are pushed to one new contact. Guess; to be measured by the bytes that one
ping can cause (without the bound: 1,001 datagrams from a node with 1,000 values)."""

DATAGRAM_LIMIT: Final = 8 * 1024 + 64
"""The largest datagram; rpcudp sends at most 8 KiB and its header."""

STORED_VALUES: Final = 1_000
"""The most values of others that a node stores. Guess; to be measured by the memory of a full store
(values are at most 1 KiB)."""

VALUE_LIMIT: Final = 1_024  # bytes of one stored value: `ENTRY_ADDRESSES` addresses

VALUE_AGE: Final = 300.0
"""A value that was not announced again for this time is dropped: five times `SEEK`."""

# --- the directory where nodes have keys ---

RECORD_LIMIT: Final = 3_072
"""The largest signed record: an address, and two certificates of some 450 bytes each; while a root
is replaced up to four."""

STORED_BYTES: Final = 1 << 20
"""The most bytes of all records that a node stores."""

RECORDS_OF_ENTRY: Final = 8
"""The most nodes whose records of one entry are kept: those that were received last."""

ENTRIES_OF_NODE: Final = 4
"""The most entries for which one node's records are kept. Nodes use one (`discovery.RING`)."""

COOKIE_TERM: Final = 120.0
"""For this time an address gets the same cookie; the cookie is valid for as long again."""

PROVEN_FOR: Final = 600.0
"""After this time a node has to prove its identity again."""

PROVEN_MOST: Final = 1_024
"""The most addresses whose nodes are known."""

STRANGERS_PER_SECOND: Final = 100.0
"""The rate of answers to datagrams without a cookie, of all senders together; at 37 bytes each, 4
kB/s. Also the rate at which proofs are verified: a twentieth of a processor."""

CALLERS_PER_SECOND: Final = 50.0
"""The rate at which datagrams with a valid cookie are handled, for each address
(`accept_limits.whose`). A lookup asks each node once or twice."""

LOCAL_CALLERS_PER_SECOND: Final = 500.0
"""The rate at which datagrams with a valid cookie are handled for this machine, on which there may
be some dozen nodes."""

CALLERS_MOST: Final = 4_096
"""The most addresses whose datagrams are counted."""

REMOTE_CONTACT_TIMEOUT: Final = 1.0
"""`CONTACT_TIMEOUT` between machines: three round trips around the earth."""

CRAWL_MOST: Final = 64
"""The most contacts that one lookup asks. Honest ones are found after some eight times the
logarithm of the number of nodes; a liar could name nearer ones without end."""

# --- telemetry ---

BUSIEST_PROCESSES: Final = 5
"""The number of processes in a sample, by processor time. Guess; to be measured by the events that
a subscriber of a desktop machine finds useful."""

FEED_PERIOD_LEAST: Final = 0.05
"""The shortest period of the feed; a sample of a machine with few processes takes 5 ms."""

FEED_PERIOD_MOST: Final = 86_400.0  # the longest period of the feed: a day

DISKS: Final = 16
"""The most disks of a sample. Guess, as the next two; to be measured by the largest machines."""

INTERFACES: Final = 16  # network interfaces of a sample at most
CORES: Final = 256  # processor cores of a sample at most

NAME: Final = re.compile(r"[A-Za-z0-9._-]{1,64}")
"""The form of the names of overlays and tenants, which certificates have."""

NAMED: Final = "1 to 64 letters, digits, dots, dashes or underscores"
"""`NAME` in words."""

SEALED: Final = "application/vnd.canopy.sealed"
"""The payload type of a sealed payload (`canopy.wire.keys.seals`), which programs without a key can
recognise."""
