"""Who serves in a cluster: founding, recruiting, joining, leaving, splitting."""
