"""Packages for people and their decisions, as the command line and the notifier see them."""
