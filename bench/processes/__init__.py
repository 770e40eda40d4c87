"""Real node processes behind a proxy that delays, drops, corrupts and blocks their traffic.

`nodes` starts and stops the processes; `overlays` starts those of a bench that needs no proxy.
`upgrade` replaces the program of real nodes under load, `guides` runs the pages of docs/guide.
"""
