"""The gateway: HTTP, WebSocket and MQTT 5 for programs without the client library.

A process of its own beside a node, whose control socket it uses like any program; a crash or a
flood here costs the node one program. It promises:

- an event that is answered with success is published (or, with `stream`, committed) by the node;
- a follower receives the events of its selector as a program does, and is told of every gap;
- a client without a valid token can do nothing; the rights of a token are *intersected* with each
  request; and a token that is removed or expires ends its connections within `constants.RECHECK`.

``events`` turns requests into drafts and deliveries into messages; ``access`` decides the rights of
a client, by a file of tokens (canopy/wire/token_file.py); ``publication`` passes drafts to the
node, and ``feeds`` sends the events of selectors and streams. ``http/`` (with the console in
``page/``) and ``mqtt/`` are the two doors, ``server`` opens them. ``javascript/`` is the client of
``http/`` for browsers and Node, also as a package; the console uses it.
"""
