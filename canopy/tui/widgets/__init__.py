"""The larger widgets, one per file; small ones of one screen stand with it.

A widget draws what it is given and posts messages to its screen.
"""
