"""The control loop's edge: observes the state, lets `node.duty` decide, and acts."""
