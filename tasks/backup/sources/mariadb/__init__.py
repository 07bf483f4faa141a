"""MariaDB: how a task names a server, how its programs are run, and its databases as a source of backups."""
