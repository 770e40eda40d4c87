"""A cluster lost whole, or without a majority: copies outside of it, and forks."""
