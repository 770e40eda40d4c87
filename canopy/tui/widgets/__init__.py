"""The larger widgets, one per file; small widgets of one screen are in the screen's file.

A widget draws what it is given and posts messages to its screen. ``event_stream`` is the list of
events, with its columns (``event_columns``), the line of its filter (``filter_bar``) and the pane
of one event (``detail``). ``subscription_list`` and ``selector_input`` are for subscriptions,
``ring_picture`` draws the clusters, and ``synced_table`` is a table that is updated in place.
"""
