"""Local programs: subscriptions, publications and questions."""
