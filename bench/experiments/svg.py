"""Pictures of experiments. matplotlib: it is what the report of the traces draws with."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, BinaryIO


@contextmanager
def svg(out: BinaryIO, size: tuple[float, float], font_size: int = 9) -> Iterator[Any]:
    """A matplotlib figure of `size` (width and height in inches) with a font of `font_size` points.
    It is written to `out` as an SVG in the end: the same bytes for the same content."""
    import matplotlib

    with matplotlib.rc_context({"svg.hashsalt": "canopy", "font.size": font_size}):
        from matplotlib.backends.backend_svg import FigureCanvasSVG
        from matplotlib.figure import Figure

        picture: Any = Figure(figsize=size, layout="constrained")
        yield picture
        canvas: Any = FigureCanvasSVG(picture)
        canvas.print_svg(out, metadata={"Date": None, "Creator": "canopy"})
