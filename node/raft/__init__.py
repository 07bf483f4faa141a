"""Raft: the one package that imports PySyncObj. `adapter.Raft` is what the node uses.

What the library does wrong is corrected where its messages arrive (`inbound`, `append_filter`), where its log is kept
(`journal`, `log_store`, `snapshots`), before it elects (`prevote`, `elections`) and in place of its own methods
(`overrides`). docs/explanation/raft.md says what that is, and which test fails without each correction.
"""
