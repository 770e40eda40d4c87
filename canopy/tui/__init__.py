"""`canopy tui`: a terminal window into one node and the overlay around it.

Read the folder in the order of an event's way: `model/` (no Textual: threads that talk to the node,
what is remembered, pure helpers), `widgets/` (one each, they draw and tell upward), `screens/`
(which put widgets together and ask the model), `app.py` (themes, the beat, the palette).

The theory of operation is one sentence: threads put what the node says into one bounded *inbox*,
and ten times a second at most the app empties it, so that the number of redraws depends on the
clock and never on the number of events.
"""
