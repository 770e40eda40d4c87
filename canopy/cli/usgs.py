"""The USGS feed of all earthquakes of the past week, over HTTPS.

(ShakeCast, which distributes such events, is the motive of the CBDLO paper, section 1.)
"""

from __future__ import annotations

import urllib.error
import urllib.request
from pathlib import Path
from typing import Final

from canopy.cli.demo.errors import OfflineError

URL: Final = "https://earthquake.usgs.gov/earthquakes/feed/v1.0/summary/all_week.geojson"
TIMEOUT: Final = 20.0
"""Seconds for the connection and for each read. Wild guess."""
SIZE_LIMIT: Final = 64 * 1024 * 1024
"""Bytes; a week has 1 to 3 MB."""


def fetch(target: Path, url: str = URL, timeout: float = TIMEOUT) -> Path:
    """Fetch the feed into `target`. Raises OfflineError when offline, with what to do instead."""
    try:
        with urllib.request.urlopen(url, timeout=timeout) as answer:
            data: bytes = answer.read(SIZE_LIMIT + 1)
    except (urllib.error.URLError, OSError, ValueError) as error:
        reason = getattr(error, "reason", None) or error
        raise OfflineError(
            f"cannot fetch the earthquakes ({reason}); without Internet use --feed telemetry, or "
            f"--feed FILE with a GeoJSON file of yours"
        ) from None
    if len(data) > SIZE_LIMIT or b'"FeatureCollection"' not in data[:4096]:
        raise OfflineError(f"what {url} answered is no feed of earthquakes")
    target.parent.mkdir(parents=True, exist_ok=True)
    target.write_bytes(data)
    return target
