"""Time to match an event against up to a million selectors, beside the counting algorithm.

`compare` is the command, `workloads` draws selectors and events, `counting` is the baseline.
"""
