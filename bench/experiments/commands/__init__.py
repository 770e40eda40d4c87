"""The commands of `bench.experiments`, one a module."""
