"""Real node processes behind a proxy that spoils their traffic, for benches and tests."""
