"""Links: sessions between two nodes (M3, M5, V3), below every machine.

Read in this order: ``messages`` (the frames), ``events`` (what is told upwards, what is needed
from below), ``outbox`` and ``inbox`` (the two directions of a session: numbered batches, credits,
cumulative acknowledgement), ``session`` (the states of M5 and what falls due when), ``handshake``
(who are you, do we go on or begin anew, which of two connections stays), ``connections`` (who is
dialled when, seeds, what an end means), ``room`` (which links give way when there are too many),
``faults`` (who is kept waiting after breaking the protocol), ``alarms`` (one heap for everything
that falls due) and ``links`` (the whole, as node.py and a driver see it).

**Theory of operation.** A *session* joins this node and one peer; a *connection* is what carries
it for a while. Batches are numbered per session and direction, so that a connection may come and
go without loss, repetition or disorder: the handshake names the next batch wanted and everything
from there is sent again. A session is named by (incarnation, session number) of both sides. A
side that has forgotten a session (it restarted, or gave the peer up for dead) offers a new number,
and the other side then knows that its old session is over: it reports what may be lost (LinkDown)
and begins anew.

**The turn.** The driver hands a frame in (`on_frame`), handlers run and `send`, node.py ends the
turn with `flush`, which writes one batch per peer; acknowledgements ride on batches, and go alone
only when nothing else does (after a tenth of a second, or at once when much is unacknowledged).

**Duties of a driver.** Call `on_tick` when `deadline` has come, report each connection's end once
(`on_closed`; not after `Transport.close`), report bytes that are no frame with `on_garbage`, and
keep a connection's frames in order. A driver may lose, repeat or delay frames: that costs time
only.

**Silence.** A peer's silence counts while something sent to it is unacknowledged, and while the
link is watched: whoever needs a peer watched for failure without talking to it pins it (`pin`),
once for all roles. A watched link that is quiet asks once per heartbeat ("are you there?"), and the
other side answers. All other links are free: a node has some forty, since views change, and one in
two hundred of them is watched. (With heartbeats on every link a node without work wrote 47 frames a
second; it writes 3.) What is not acknowledged in the usual time is told long before that
(LinkSilent, LinkHeard), so that it may go another way. Time in which this node itself stood still
is nobody's silence (`Links.on_tick`).
"""
