"""Which cluster a node belongs to, and which nodes it refuses because they belong to another one.

Clusters that share a secret, or even addresses (a copied compose file, a member that returns from an abandoned
cluster), must not mix. So every connection names the sender's cluster: Raft's, the heartbeats', and each request of a
member. A node has no cluster id until its cluster is founded or it has joined. Without an id it may connect to any
cluster. With one, which its data folder keeps, it connects only to its own.
"""

import logging
from typing import Final

_log = logging.getLogger("rota.cluster")

LOGGED_MAX: Final = 256
"""How many refused nodes are remembered as logged. When there are more, all are forgotten, and may be logged again."""


class ClusterId:
    """The id of this node's cluster, empty while it has none. Any thread may use it."""

    def __init__(self, known: str = "") -> None:
        self.known = known
        self._logged: set[tuple[str, str]] = set()

    def stranger(self, who: str, theirs: str) -> str | None:
        """Say why `who`, a node of cluster `theirs`, is refused; None if it is not. Each refusal is logged once.

        >>> ClusterId("a").stranger("n", "a"), ClusterId("a").stranger("n", ""), ClusterId().stranger("n", "b")
        (None, None, None)
        """
        if not self.known or not theirs or self.known == theirs:
            return None
        why = (
            f"{who} belongs to cluster {theirs}, this node to cluster {self.known}. A node joins another cluster only "
            "with an empty data folder and ROTA_JOIN"
        )
        if (who, theirs) not in self._logged:
            if len(self._logged) >= LOGGED_MAX:
                self._logged.clear()
            self._logged.add((who, theirs))
            _log.warning("refused: %s", why)
        return why
