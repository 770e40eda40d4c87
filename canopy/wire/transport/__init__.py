"""Frames, codec, and TCP connections over trio (docs/reference/wire.md).

``framing`` cuts bytes into frames and ``codec`` turns bodies into messages, both without IO.
``connection`` is one TCP connection between two nodes: it reads through ``inlet`` and writes
through ``outlet``, which the control socket uses too. ``tls`` encrypts between the two if the node
has keys. ``acceptor`` accepts connections: ``accept_limits`` limits the connections of an address
and orders handshakes, and ``local_users`` finds the user of a program at the other end of a
connection within this machine. ``room`` is the memory that sockets are read into.
"""
