"""Event loop, threads, log lines and file descriptors. Knows nothing of Rota."""
