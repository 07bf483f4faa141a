"""The wire: messages, their encryption, and the library's sockets with limits. Does not know the members of the log."""
