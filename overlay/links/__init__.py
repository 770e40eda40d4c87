"""Links: sessions between two nodes, below every machine (mechanisms M3, M5, V3).

What a link promises: messages arrive in order, at most once and undamaged, or are named by
`LinkDown` as possibly lost; memory is bounded by credit windows and queue limits; a peer's death is
noticed within ``links.dead_after`` wherever something was sent to it or it is watched. Called by
node.py (`send`, `flush`, `pin`) and by a driver (canopy/wire/, canopy/sim/), which carries the
frames. The design
with its sources is docs/design/links.md; the paper names no transport, and what is here follows
TCP (RFC 9293, 5681, 6298), QUIC (RFC 9000), SWIM and Lifeguard.

Read in this order: ``messages`` (the frames), ``events`` (what is emitted upwards, what is needed
from below, what all parts share), ``send_buffer`` and ``receive_buffer`` (the two directions of a
session), ``retransmission`` (what is overdue, and what is lost), ``session`` (the states of one
session and its deadlines), ``session_table`` (all sessions, and which idle ones give way when there
are too many), ``connections`` (transport connections, and the addresses that are dialled for ever,
which ``peer_list`` looks after), ``dialler`` (brings sessions up and takes them down, with back-off
for peers that broke the protocol), ``handshake`` (who is there, resume or begin again, which of two
connections stays) and ``links`` (the whole, what happens on an established session, when silence is
a suspicion or the end, and another way for a silent peer's session: P3). Small parts: ``deadlines``
(one heap for all that falls due), ``backlog`` (how much to keep for an unreachable peer),
``hybrid_clock`` (the causal order of trace records, carried by batches), ``statements`` (statements
that a node signs, and tokens), ``constants`` (every number that is no setting).

**Sessions and connections.** A *session* joins this node and one peer; a *connection* carries it
for a while. Batches are numbered per session and direction, so that connections may come and go
without loss, duplicates or disorder: the handshake names the next batch expected, and everything
from there is sent again. A session is named by (incarnation, session number) of both sides. A side
that has forgotten it (it restarted, or gave the peer up) offers a new number; the other side then
reports what may be lost (LinkDown) and begins again.

**Turns.** The driver hands a frame in (`on_frame`), handlers run and call `send`, and node.py ends
the turn with `flush`, which writes one batch per peer. Acknowledgements ride on batches, and go
alone only when there is none within `constants.ACK_DELAY`, or at once when a quarter of the window
is unacknowledged.

**Duties of a driver.** Call `on_tick` when `deadline` has come, report each connection's end once
(`on_closed`; not after `Transport.close`), report bytes that are no frame with `on_garbage`, and
keep a connection's frames in order. A driver may lose, duplicate or delay frames: that costs time
only.

**Late or silent.** Nothing is sent twice on a guess: a peer that does not acknowledge in time is
asked what it has, and its answer, on a connection that keeps the order, says what was lost. Who
acknowledges or answers late is late; of whom nothing comes is silent, and only then another way is
looked for. What a peer does not handle soon waits in the send buffer, where what `overtakes`
(overlay/machine.py) goes first.

**Failure detection.** A peer's silence counts while something sent to it is unacknowledged, or
while the link is watched: a machine that needs a peer watched without talking to it pins the link
(`pin`), once for all roles. A watched link that is quiet sends a probe per heartbeat, which the
peer answers. Other links cost nothing: a node has some forty, since views change, and one in two
hundred is watched. (With heartbeats on every link an idle node wrote 47 frames per second; it
writes 3.) Long before a peer counts as dead it is suspected (LinkSuspected, LinkRecovered), so
that what waits may take another way, and other nodes are asked whether they reach it: if so, the
session goes on by way of one of them (`Detouring`). Time during which this node itself stalled
is not counted against its peers (LocalStall).
"""
