"""Founding a cluster: what a node says of itself and promises (`statement`), what follows (`founding`), who is asked
(`inquiry`).
"""
