"""How long an event takes to find its matches, beside counting."""
