"""First-party plugins: found by their entry points, as a stranger's are; the core imports none of them."""
