"""The HTTP door: CloudEvents in, server-sent events and WebSockets out, questions to the node, and
the console that shows all of it.

``exchange`` has one connection's requests and answers (h11; nothing of the protocol is written
here), ``paths`` what each path does, and server-sent events, ``api`` the questions and their
description, ``page/`` the console, without a build step or anything from elsewhere. ``sockets``
are followers' WebSockets. docs/guide/gateway.md has the requests.
"""
