"""Where the rows of an ETL task go: each batch once, in a transaction that says which batch it is."""
