"""Real node processes behind a proxy that delays, drops, corrupts and blocks their traffic.

`nodes` starts and stops the processes, `fault_proxy` is the proxy. Used by benches and by the tests
of faults from outside. `upgrade` replaces the program of real nodes under load.
"""
