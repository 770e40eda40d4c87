"""The MQTT 5 door: user properties are attributes, and topic filters and selectors subscribe.

``door`` is one client's session, ``packets`` reads and writes packets with the codec of the package
``mqtt5``, ``packet_check`` refuses packets that the codec accepts and the standard forbids,
``topics`` turns topic filters into selectors, ``messages`` messages into events and back.
docs/guide/gateway.md describes the service: quality of service 0 and 1, no retained messages, no
sessions that outlive a connection.
"""
