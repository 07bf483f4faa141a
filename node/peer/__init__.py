"""What members, and those that want to be one, say to one another over HTTP: how it is signed."""
