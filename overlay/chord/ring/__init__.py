"""The Chord ring of clusters: who owns a key, and pointers kept right."""
