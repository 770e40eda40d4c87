"""The data of the screens, requested from the node. Nothing here imports Textual.

Screens use ``attachment``. It owns a ``requester`` (a thread for requests), a ``subscriber`` (a
thread) per subscription, a ``stream_reader`` for a stream that is read, the ``inbox`` between these
threads and the app, and the ``log`` of events; ``saved`` keeps the subscriptions for the next
start. The rest are pure helpers: ``completion`` completes and checks selectors, ``rates`` and
``text`` format values.
"""
