"""Time until an overlay of real processes serves again after processes are killed (kill -9).

`measure` is the command, `trial` one measurement, `simulated` the same in the simulator, `flows`
the publishers and subscribers.
"""
