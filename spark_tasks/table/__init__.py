"""Delta tables to which each batch is committed once, and the ledger of the files that batches were made from."""
