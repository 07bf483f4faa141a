"""What a node that wants to be a member asks those that are: it knows the secret and an address, and no token."""

import json
from typing import Any

from node.client import ApiAnswer, ApiProblem, Client
from node.peer.signing import ANY_MEMBER, CHALLENGE, SIGNED, answer_mac, asked, member_key, same_mac


class Newcomer:
    """Asks `/peer/members` of the cluster that `client` speaks to, as `me`. Blocks."""

    def __init__(self, client: Client, secret: str, me: str) -> None:
        self._client = client
        self._key = member_key(secret)
        self._me = me
        self._challenge: str | None = None

    def get(self, path: str) -> Any:
        """The body of a GET. Raises `ApiProblem`, `Unreachable`."""
        return self._ask("GET", path, None).json

    def call(self, method: str, path: str, *, body: Any) -> ApiAnswer:
        """One request. Raises `ApiProblem`, `Unreachable`."""
        return self._ask(method, path, body)

    def _ask(self, method: str, path: str, body: Any) -> ApiAnswer:
        try:
            return self._signed(method, path, body)
        except ApiProblem as problem:
            challenge = problem.headers.get(CHALLENGE)
            if problem.status != 401 or challenge in (None, self._challenge):
                raise
            self._challenge = challenge
        return self._signed(method, path, body)

    def _signed(self, method: str, path: str, body: Any) -> ApiAnswer:
        packed = b"" if body is None else json.dumps(body).encode()  # as the client sends it
        question = asked(method, path, packed, self._me, ANY_MEMBER, "", self._challenge)
        headers = {"Authorization": question.header(self._key), "Rota-Member": self._me}
        answer = self._client.call(method, path, body=body, headers=headers)
        mac = answer_mac(self._key, question.mac(self._key), answer.status, answer.body)
        if not same_mac(answer.headers.get(SIGNED, ""), mac):
            raise ApiProblem(
                401, "about:blank", "Not signed", "what answers there does not know this node's ROTA_SECRET"
            )
        return answer
