"""The log on the disk: the journal, how far it reaches, its snapshots, and the changes of membership in it."""
