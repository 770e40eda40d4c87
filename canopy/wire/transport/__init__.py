"""Frames, codec, and TCP connections over trio (docs/reference/wire.md).

``framing`` cuts bytes into frames and ``codec`` turns bodies into messages, both without IO.
``connection`` is one TCP connection between two nodes: it reads through ``inlet`` and writes
through ``outlet``, which the control socket uses too. ``tls`` encrypts between the two where the
node has keys, and ``accept_limits`` says how many connections an address may open.
"""
