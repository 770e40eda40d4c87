"""How `canopy sub` prints deliveries: ``lines`` chooses the manner, ``template`` is `--format`."""
