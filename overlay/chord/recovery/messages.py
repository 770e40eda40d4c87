"""The vocabulary of cluster recovery (P5).

The rest of what the paper names there is said with the messages of every day: RECOVERY(RT_SUB) is
`Install`, RECOVERY(RT) is `Assign`, SUCCESS their answers.
"""

from __future__ import annotations

from overlay.chord.messages import Cluster
from overlay.machine import Key, Message, Version


class RecoverRequest(Message, frozen=True):
    """May I lead `cluster`, which has no leader as far as I see, under the fork `epoch`? My log, or
    copy of it, is at `position`. (Epoch 0: not yet; look whether you hear a leader.)"""

    cluster: Cluster
    epoch: int
    position: Version


class RecoverReply(Message, frozen=True):
    """Answer: whether the sender knows of no leader and of no fitter node. If it knows a leader,
    `Moved` goes along."""

    key: Key
    epoch: int
    agreed: bool
