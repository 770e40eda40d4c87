"""Frames, codec, and TCP connections over trio (docs/reference/wire.md).

``framing`` cuts bytes into frames and ``codec`` turns bodies into messages, both without IO.
``connection`` is one TCP connection between two nodes: it reads through ``inlet`` and writes
through ``outlet``, which the control socket uses too. ``tls`` encrypts between the two where the
node has keys. ``acceptor`` accepts connections: ``accept_limits`` says how many an address may
open and whose handshake is next, and ``local_users`` whose program is at the other
end of a connection within this machine. ``room`` is the memory that sockets are read into.
"""
