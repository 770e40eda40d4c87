"""All input and output of a node. The ``kademlia`` package is used only here, and trio only here
and in canopy/trio.py.

Read in this order:

- ``addresses``, ``config``, ``constants``, ``log``, ``folder``: the node's surroundings: addresses
  as text, the configuration, fixed numbers, the log, the data folder (its lock and that of the id,
  the identity), with ``state_file`` (its records, and their commits) and ``durable`` (how its files
  are written, and the errors of a disk);
- ``transport/`` frames, codec, and TCP connections, in TLS if the node has keys;
- ``keys/`` keys and certificates: issuers, joining, revocation; ``audit``, the file that records
  their use, ``token_file``, the programs that may use a node or a gateway, and ``private_file``,
  one secret in the place of which ``@FILE`` is given;
- ``driver`` runs a `node.Node` over trio: inputs, timer, and the order of the steps of a turn;
- ``shards/`` the disk of the shards of streams: a list, files, and a thread that writes them;
- ``control/`` the Unix socket for programs (their side is canopy/client/);
- ``directory/`` the Kademlia directory, and the node's lookups there;
- ``admin/`` metrics and checks over HTTP, for monitoring;
- ``process/`` puts them together: `run_node`, from the configuration to the exit code.

`canopy.cli` calls ``process`` and ``config``; canopy/client/ uses ``transport.framing`` and
``folder``.
"""
