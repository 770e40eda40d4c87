"""How long an overlay of real processes takes to recover from kill -9."""
