"""The vocabulary of cluster recovery (P5).

The rest of what the paper names there is said with the messages of every day: RECOVERY(RT_SUB) is
`Install`, RECOVERY(RT) is `Assign`, SUCCESS their answers.
"""

from __future__ import annotations

from overlay.chord.messages import Cluster
from overlay.machine import Key, Message, Version


class RecoverRequest(Message, frozen=True):
    """Nobody leads `cluster`, as far as the sender sees: may it, under the fork `epoch`? Its log or
    copy of the log is at `position`. (Epoch 0: not yet; look whether you hear a leader.)"""

    cluster: Cluster
    epoch: int
    position: Version


class RecoverReply(Message, frozen=True):
    """Answer: nobody is known here who leads it or is fitter to. Where somebody is who leads it,
    `Moved` goes along."""

    key: Key
    epoch: int
    agreed: bool
