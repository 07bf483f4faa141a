"""Webhooks as sink: requests that are kept before they are sent, and sent until they are acknowledged."""
