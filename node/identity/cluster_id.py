"""Which cluster a node is of, and whom it therefore has nothing to do with.

Clusters that share a secret, and addresses even (a compose file that was copied, a member that comes back from a
cluster that was given up), must not mix. So whoever connects says which cluster it is of: over Raft's connections,
over the heartbeats' and with each question of a member's. A node has no id until its cluster is founded, or until it
is let in; without one it fits everywhere, with one nowhere else, ever: it is kept in the data folder.
"""

import logging
from typing import Final

_log = logging.getLogger("rota.cluster")

TOLD_MAX: Final = 256
"""So many strangers are remembered as told of; then they are told of anew."""


class ClusterId:
    """The id of this node's cluster, empty while there is none. May be used from any thread."""

    def __init__(self, known: str = "") -> None:
        self.known = known
        self._told: set[tuple[str, str]] = set()

    def stranger(self, who: str, theirs: str) -> str | None:
        """Why `who`, which is of cluster `theirs`, is refused; None if it is not. Written to the log, once for each.

        >>> ClusterId("a").stranger("n", "a"), ClusterId("a").stranger("n", ""), ClusterId().stranger("n", "b")
        (None, None, None)
        """
        if not self.known or not theirs or self.known == theirs:
            return None
        why = (
            f"{who} belongs to cluster {theirs}, and this node to cluster {self.known}: they have nothing to do with "
            "each other. A node comes into another cluster only with an empty data folder, and ROTA_JOIN"
        )
        if (who, theirs) not in self._told:
            if len(self._told) >= TOLD_MAX:
                self._told.clear()
            self._told.add((who, theirs))
            _log.warning("refused: %s", why)
        return why
