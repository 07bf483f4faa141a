"""Whether a text of a task's author may reach Spark's SQL: parsed by Spark, and held against lists of what is known."""
