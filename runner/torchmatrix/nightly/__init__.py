"""A night: measure, gate, pages, keeping; its journal, and the timers of systemd or cron that begin it."""
