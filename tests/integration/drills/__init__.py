"""Backups that are spoilt in drawn ways, and good ones: drills tell them apart."""
