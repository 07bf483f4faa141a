"""What a task is: its definition, when it is due, what the policies let run, and the states of a run. Pure."""
