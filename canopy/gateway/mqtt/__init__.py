"""The MQTT 5 door: user properties are attributes, and topic filters and selectors subscribe.

``door`` is one client's session, ``packets`` reads and writes packets (the codec is the package
``mqtt5``, and ``packet_check`` refuses what the standard forbids and the codec takes), ``topics``
turns topic filters into selectors, ``messages`` messages into events and back.
docs/guide/gateway.md has what clients may rely on: quality of service 0 and 1, no retained
messages, no sessions that outlive a connection.
"""
