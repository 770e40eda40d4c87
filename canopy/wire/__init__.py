"""All input and output of a node. The ``kademlia`` package is used only here, and trio only here
and in canopy/trio.py.

Read in this order:

- ``addresses``, ``config``, ``constants``, ``log``, ``folder``: what a node is given: addresses as
  text, what a user may set, fixed numbers, the log, the data folder (locks of it and of the id,
  identity), with ``state_file`` (its records, and their commits) and ``durable`` (how its files are
  written, and what a disk refuses);
- ``transport/`` frames, codec, and TCP connections, in TLS where the node has keys;
- ``keys/`` keys and certificates: who signs, how a node joins, who is revoked; ``audit``, the file
  of what was done with them, and ``token_file``, which programs may use a node or a gateway;
- ``driver`` runs a `node.Node` over trio: inputs, timer, and the order of the steps of a turn;
- ``shards/`` the disk of the shards of streams: a list, files, and a thread that writes them;
- ``control/`` the Unix socket for programs (their side is canopy/client/);
- ``directory/`` the Kademlia directory, and what a node looks up there;
- ``admin/`` metrics and checks over HTTP, for who watches the node;
- ``process/`` puts them together: `run_node`, from the configuration to the exit code.

`canopy.cli` calls ``process`` and ``config``; canopy/client/ uses ``transport.framing`` and
``folder``.
"""
