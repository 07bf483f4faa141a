"""The client of a node that wants to join, which knows the cluster's secret and an address, but no token."""

import json
from typing import Any, Final

from node.client import ApiAnswer, ApiProblem, Client
from node.peer.signing import (
    ANY_MEMBER,
    CHALLENGE,
    SIGNED,
    is_of_this_form,
    macs_equal,
    new_request,
    response_mac,
    signing_key,
)

_OTHER_BUILD: Final = (
    "the process at that address runs another build, which signs requests in another form: install the cluster's build "
    "on this node"
)


class JoinClient:
    """Sends signed requests for `/peer/members` through `client`, as `me`. Blocks."""

    def __init__(self, client: Client, secret: str, me: str) -> None:
        self._client = client
        self._key = signing_key(secret)
        self._me = me
        self._challenge: str | None = None

    def get(self, path: str) -> Any:
        """Return the body of a GET. Raises `ApiProblem`, `Unreachable`."""
        return self._request("GET", path, None).json

    def call(self, method: str, path: str, *, body: Any) -> ApiAnswer:
        """Send a request, and return the answer. Raises `ApiProblem`, `Unreachable`."""
        return self._request(method, path, body)

    def _request(self, method: str, path: str, body: Any) -> ApiAnswer:
        try:
            return self._send_signed(method, path, body)
        except ApiProblem as problem:
            challenge = problem.headers.get(CHALLENGE)
            if problem.status != 401 or challenge is None:
                raise
            if not is_of_this_form(challenge):
                raise ApiProblem(401, "about:blank", "Another build", _OTHER_BUILD) from None
            if challenge == self._challenge:
                raise
            self._challenge = challenge
        return self._send_signed(method, path, body)

    def _send_signed(self, method: str, path: str, body: Any) -> ApiAnswer:
        packed = b"" if body is None else json.dumps(body).encode()  # as the client sends it
        request = new_request(method, path, packed, self._me, ANY_MEMBER, "", self._challenge)
        headers = {"Authorization": request.header(self._key), "Rota-Member": self._me}
        answer = self._client.call(method, path, body=body, headers=headers)
        mac = response_mac(self._key, request.mac(self._key), answer.status, answer.body)
        if not macs_equal(answer.headers.get(SIGNED, ""), mac):
            raise ApiProblem(
                401, "about:blank", "Not signed", "the process at that address does not know this node's ROTA_SECRET"
            )
        return answer
