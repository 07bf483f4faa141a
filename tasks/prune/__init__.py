"""The kind `backup_prune`: removes old backups and log where the tasks that write them may not delete anything."""
