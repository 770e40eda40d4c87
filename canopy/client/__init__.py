"""The client library: how a program uses the node on its machine. `import canopy` has its names.

What it promises: a matching event that was published after `subscribe` returned is handed out once,
in the order of arrival, or a `Gap` stands in its place; a node that goes away is looked for, and
subscribed to again; nothing here waits for ever unless asked to. A program talks to its node
over the control socket (docs/reference/wire.md); the node does the rest.

Read in this order:

- ``errors``, ``notices`` what can go wrong, and what a subscription yields beside events;
- ``faces`` how a method is written once, as a coroutine, for programs that block and for programs
  of trio and asyncio; ``link`` what the coroutines await in the end: a connection, and a runtime;
- the core, without IO: ``session`` one connection (with ``frames`` and ``arrivals``: decoding,
  order and credit), ``node`` the client's node across connections, ``resubscription`` what is
  subscribed across them, ``consumer`` the subscriptions, ``publication`` from events to
  publications and back to a result, ``streams`` durable
  streams, ``client`` all of it for a program, events that ask for answers, and how it connects;
  ``seals`` payloads that are sealed when they leave and opened when they come;
- connections: ``blocking`` over a blocking socket (any command, no reconnecting), ``async_link``
  over a stream of trio or asyncio (canopy/trio.py, canopy/aio.py);
- ``control_socket`` where a node's socket is, ``remote`` a node on another machine, ``contexts``
  the user's names for data folders; ``command_check`` what is refused before it is sent;
- for people: ``hints`` what is odd about a selector, ``comparison`` what a changed one gains and
  loses.

Called by programs, the command line, the terminal UI, and the measurements. It knows the vocabulary
of commands and replies (overlay/client.py), the frames (canopy/wire/transport/framing.py) and the
layout of a data folder (canopy/wire/folder.py), and nothing else of a node.
"""
