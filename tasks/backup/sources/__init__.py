"""The sources of backups, one module each. Every source is dumped to a stream of bytes and restored from one."""
