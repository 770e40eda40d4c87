"""What the analysis of traces costs: ``analysis`` makes a run's traces and has them analysed."""
