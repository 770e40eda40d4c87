"""The client library: how a program uses the node on its machine. `import canopy` has its names.

What it promises: a matching event that was published after `subscribe` returned is handed out once,
in the order of arrival, or a `Gap` stands in its place; after the loss of its node the library
looks for it and subscribes again; no call waits for ever unless asked to. A program talks to its
node over the control socket (docs/reference/wire.md); the node does the rest.

Read in this order:

- ``errors``, ``notices`` the errors, and the notices that a subscription yields beside events;
- ``faces`` how a method is written once, as a coroutine, for programs that block and for programs
  of trio and asyncio; ``link`` the interfaces that the coroutines await: a connection, and a
  runtime;
- the core, without IO: ``session`` one connection, its checks, order and credit (with
  ``frames``: decoding), ``node`` the client's node across connections, ``resubscription`` the
  subscriptions across connections, ``consumer`` the subscriptions' events, ``publication`` from
  events to publications and from replies to a result, ``streams`` durable streams, ``client`` the
  class that programs use, requests that ask for answers, and `connect`; ``seals`` payloads that are
  sealed when they leave and opened when they arrive;
- connections: ``blocking`` over a blocking socket (any command, no reconnecting), ``async_link``
  over a stream of trio or asyncio (canopy/trio.py, canopy/aio.py);
- ``control_socket`` where a node's socket is, ``remote`` a node on another machine, ``contexts``
  the user's names for data folders;
- for people: ``hints`` about a selector, ``comparison`` of a selector with a changed one.

Called by programs, the command line, the terminal UI, and the measurements. It knows the vocabulary
of commands and replies (overlay/client.py), the frames (canopy/wire/transport/framing.py) and the
layout of a data folder (canopy/wire/folder.py), and nothing else of a node.
"""
