"""The demo: `make demo`. Three nodes on this machine, a year of flights, a database, and a node that is killed."""
