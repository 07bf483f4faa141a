"""A member's coming and going: let in, joined, marked down and back, drained, removed, and the lead among them."""
