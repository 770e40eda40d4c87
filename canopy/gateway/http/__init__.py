"""The HTTP door: CloudEvents in, server-sent events and WebSockets out, and a page that shows both.

``exchange`` has one connection's requests and answers (h11; nothing of the protocol is written
here), ``paths`` what each path does, those of the page included. ``sse`` and ``sockets`` write to
followers. docs/guide/gateway.md has the requests.
"""
