"""Founding a cluster: the nodes' statements and promises (`statement`), the decisions (`founding`), and the exchange of
statements with other nodes (`inquiry`).
"""
