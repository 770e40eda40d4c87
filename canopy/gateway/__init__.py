"""The gateway: HTTP, WebSocket and MQTT 5 for programs that have no client library of ours.

A process of its own beside a node, whose control socket it uses like any program; a crash or a
flood here costs the node one program. It promises:

- an event that is answered with success is published (or, with `stream`, committed) by the node;
- a follower gets the events of its selector as a program does, and hears of every gap;
- who has no valid token does nothing, what a token allows is *intersected* with what is asked for,
  and a token that is removed or expires ends what it has opened within `constants.RECHECK`.

``events`` turns requests into drafts and deliveries into messages; ``access`` decides who may do
what, by a file of tokens (canopy/wire/token_file.py); ``publication`` passes drafts to the node,
and ``feeds`` sends the events of selectors and streams. ``http/`` (with the console in ``page/``)
and ``mqtt/`` are the two doors, ``server`` opens them. ``javascript/`` is the client of ``http/``
for browsers and Node, also as a package; the console uses it.
"""
