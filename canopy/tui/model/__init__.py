"""What the TUI knows and how it learns it. Nothing here imports Textual."""
