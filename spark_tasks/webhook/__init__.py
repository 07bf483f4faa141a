"""Webhooks as sink: requests are stored before they are sent, and are sent until they are acknowledged."""
