"""The public SDK: everything a Python service needs to start, report and run steps."""
