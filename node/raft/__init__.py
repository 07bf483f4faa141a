"""Raft: the one package that imports PySyncObj. `adapter.Raft` is what the node uses.

What section 11 of the design found in the library is mended where its messages come in (`intake`, `trimming`), where
its log is kept (`journal`, `folder`, `snapshots`) and before it elects (`prevote`).
"""
