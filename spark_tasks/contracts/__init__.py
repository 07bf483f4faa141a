"""What every source and every sink offers to a kind, and what several of them need: names, rows, values."""
