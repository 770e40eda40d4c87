"""A fault, and how long deliveries take to flow again: `plan` says whom it hits, `flows` are the
publisher and the subscribers of real nodes, `verdict` judges what they saw."""
