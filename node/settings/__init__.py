"""The settings of a node: the ROTA_* variables as one table, and how their text is read."""
