"""Spark itself: a session for one attempt, and the Java that it runs on."""
