"""A task's definition: its fields, its due times, the policies for its runs, and the states of a run. Pure."""
