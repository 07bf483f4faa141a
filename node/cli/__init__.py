"""The command line: `rota`."""
