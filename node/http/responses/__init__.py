"""The bodies of responses, as /openapi.json describes them. `node.http.views` makes them from the replicated state."""
