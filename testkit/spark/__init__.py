"""What tests of spark_tasks share: tables, databases, sources and sinks, and attempts at them."""
