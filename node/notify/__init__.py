"""Sends notices on the cluster's channels: what `node.duty.telling` decides, over HTTP or by Apprise."""
