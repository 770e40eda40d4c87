"""In which regions a cluster's trees are to have a host (M1): where their subscribers are."""

from __future__ import annotations

from collections.abc import Mapping

from overlay.machine import Region
from overlay.upper_tree.owner.constants import REGION_SHARE, REGIONS_MOST


class WantedRegions:
    """Those with a share of the registrations. One that is wanted stays so until it has less than
    half of that, so that hosts do not come and go with single registrations."""

    def __init__(self) -> None:
        self._wanted: tuple[Region, ...] = ()

    def update(self, interest: Mapping[Region, int]) -> tuple[Region, ...]:
        """The regions, that of most interest first. `interest`: registrations by region, "" those
        of nodes without one."""
        least = REGION_SHARE * sum(interest.values())
        found = [
            (-count, region)
            for region, count in interest.items()
            if region and count >= (least / 2 if region in self._wanted else least)
        ]
        self._wanted = tuple([region for _, region in sorted(found)[:REGIONS_MOST]])
        return self._wanted
