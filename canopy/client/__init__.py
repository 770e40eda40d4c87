"""The client library: how a program uses the node on its machine. `import canopy` has its names.

What it promises: a matching event that was published after `subscribe` returned is handed out once,
in the order of arrival, or a `Gap` stands in its place; a node that goes away is looked for, and
subscribed to again; nothing here waits for ever unless asked to. A program talks to its node
over the control socket (docs/reference/wire.md); the node does the rest.

Read in this order:

- ``errors``, ``notices`` what can go wrong, and what a subscription yields beside events;
- the core, without IO: ``session`` one connection (with ``frames`` and ``arrivals``: decoding,
  order and credit), ``resubscription`` what is subscribed across connections, ``consumer`` what
  was received and not handed out, ``publishing`` from events to publications and back to a result,
  ``calls`` events that ask for answers, ``streams`` the same for durable streams (``steps`` are
  carried out by either face), ``seals`` payloads that are sealed when they leave and opened when
  they come;
- the faces: ``blocking`` one connection over a blocking socket (any command, no reconnecting),
  ``synchronous`` the `Client` and `Subscription` of `canopy.connect` on top of it,
  ``async_link`` and ``asynchronous`` the same for trio and asyncio (canopy/trio.py,
  canopy/aio.py).
  The faces repeat each other's signatures and docstrings, and so do the names of canopy/trio.py and
  canopy/aio.py: editors, type checkers and `help` read them there. What a call does is in the core;
- ``locating`` where a node's socket is; ``contexts`` the user's names for data folders;
  ``hints`` what is odd about a selector, for people.

Called by programs, the command line, the terminal UI, and the measurements. It knows the vocabulary
of commands and replies (overlay/client.py), the frames (canopy/wire/transport/framing.py) and the
layout of a data folder (canopy/wire/folder.py), and nothing else of a node.
"""
