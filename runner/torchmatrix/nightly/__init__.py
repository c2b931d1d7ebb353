"""The gate, which judges the newest run against the nights before; the journal of nights, and which old runs go."""
