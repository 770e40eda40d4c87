"""The owner's side: the primary of an arc keeps its trees' maps and registrations."""
