"""The door: connections and their limits, who may ask, and what every request passes before and after its handler."""
