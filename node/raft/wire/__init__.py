"""What goes over a connection: messages, their encryption, and the library's sockets with limits. Knows no member."""
