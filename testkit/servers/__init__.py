"""Servers on loopback that stand for others: an API, a mail server, a store, a watcher, a receiver of webhooks."""
