"""The HTTP door: CloudEvents in, server-sent events and WebSockets out, questions to the node, and
the console, which shows all of it.

``exchange`` has one connection's requests and answers (over h11), ``paths`` handles each path, and
server-sent events, ``api`` has the questions and their description, ``page/`` the console, without
a build step or parts from other sites. ``sockets`` has followers' WebSockets. docs/guide/gateway.md
describes the requests.
"""
