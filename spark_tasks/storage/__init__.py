"""Where tables are: a local folder, or a prefix in a bucket; what deltalake needs to open it, and how a store fails."""
