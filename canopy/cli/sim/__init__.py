"""`canopy sim`: the overlay in a world of virtual time, one file per command."""
