"""What can be backed up, a file for each. Every one gives a stream of bytes, and takes one back."""
