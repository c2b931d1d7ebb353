"""Audits published tables, and runs, for impossible throughputs."""
