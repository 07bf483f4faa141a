"""Where the rows of an ETL task come from: a plan for each batch, then the rows of the plan."""
