"""All input and output of a node. trio and the ``kademlia`` package are used only here.

Read in this order:

- ``addresses``, ``config``, ``constants``, ``log``, ``folder``: what a node is given: addresses as
  text, what a user may set, fixed numbers, the log, the data folder (lock, identity, records);
- ``transport/`` frames, codec, and TCP connections;
- ``driver`` runs a `node.Node` over trio: inputs, timer, and the order of the steps of a turn;
- ``control/`` the Unix socket for programs, and its other side for CLI, TUI and client library
  (plain blocking sockets, so that they need no trio);
- ``directory/`` the Kademlia directory, and what a node looks up there;
- ``process/`` puts them together: `run_node`, from the configuration to the exit code.

`canopy.cli` calls ``process`` and ``config``; everything else of the product knows only
``control``'s client side.
"""
