"""One widget a file: they draw what they are given and tell upward by messages."""
