"""What can go wrong in an analysis, said so that a person knows what to do next."""


class AnalysisError(Exception):
    """The analysis could not be made. The text says what, where and what to do about it."""
