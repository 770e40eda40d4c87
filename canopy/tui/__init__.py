"""`canopy tui`: the terminal UI of one node and of the overlay as this node sees it (Textual).

- ``model/`` talks to the node in threads and holds the data of the screens, without Textual.
- ``widgets/`` draw, and post messages to their screen.
- ``screens/`` compose widgets, handle their messages and call the model.
- ``app`` has the main screens, the tick, the command palette and the colours, ``constants`` the
  numbers.

Threads put deliveries and replies into one bounded inbox, and the app empties it at most ten times
a second: the number of redraws depends on the clock, not on the number of events.
"""
