"""`canopy sim`: the overlay in a world of virtual time.

``command`` has the group and `sim run`; ``soak`` has `sim soak` and `sim pairs`, and the report
about a failing seed with its smaller scenario; ``replay`` runs traces again, and shows how far a
run is. `canopy.sim` computes everything.
"""
