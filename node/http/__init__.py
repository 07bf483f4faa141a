"""The HTTP API: any member answers any request."""
