"""Event loop, threads, log lines and file descriptors. Does not depend on the rest of Rota."""
