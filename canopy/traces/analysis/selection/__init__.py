"""Finds the events that each selector of a run selects, at a cost that grows with the number of
matches.

This is what makes the analysis independent: it uses neither the overlay's index nor `matching`. The
subscribe record has the selector's parsed tree as JSON. ``text`` tells whether it is the tree of
the selector's text, by a parser of its own. ``trees`` evaluates a tree over one event's attributes,
in SQL's three values. ``cover`` derives from a tree ranges of attributes outside of which it cannot
be true. ``matcher`` joins the ranges of all trees with a batch of events: of each conjunction it
takes the range in which the fewest of these events are, and checks the others for the events in it
only. ``job`` has Spark do so for all events, batch by batch.

Workers of a cluster need not have Canopy: ``job`` sends them this folder, which is why it imports
nothing of the project but plain numbers. They need NumPy and PyArrow.
"""
