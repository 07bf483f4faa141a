"""What is made of a source's rows: Spark SQL, or a Python function from an entry point."""
