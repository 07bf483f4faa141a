"""The page at `/`: what runs where, what comes next, what is wrong and why. HTML over what the API's routes use."""
