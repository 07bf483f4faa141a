"""The log on the disk: the journal and its checks for damage, its snapshots, and the changes of membership in it."""
