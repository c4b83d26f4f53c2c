"""Groupwise."""
