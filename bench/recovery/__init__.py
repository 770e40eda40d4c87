"""Time until an overlay of real processes serves again after processes are killed (kill -9).

`measure` is the command, `trial` one measurement, `flows` the publishers and subscribers.
"""
