"""The cluster's replicated log, heartbeats and elections."""
