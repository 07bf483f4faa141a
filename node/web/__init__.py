"""The page at `/`: which tasks run where, which come next, what is wrong and why. HTML over the code of the API."""
