"""Raft: the only package that imports PySyncObj. The node uses `adapter.Raft`.

Defects of the library are corrected where its messages arrive (`core.inbound`, `log.append_filter`), where its log is
kept (`log`), before an election (`core.prevote`, `core.elections`) and in place of its methods (`core.overrides`).
docs/explanation/raft.md lists the corrections, and the test that fails without each one.
"""
