"""Delta tables: batches committed once, and the ledger of what they were made from."""
