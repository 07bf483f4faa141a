"""What somebody without the token, or without the secret, can do to a cluster at work."""
