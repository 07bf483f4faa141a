"""Sends notices on the cluster's channels, as `node.duty.telling` decides: over HTTP or by Apprise."""
