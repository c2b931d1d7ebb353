"""A night: measure, gate, pages, retention; its journal, and the timers of systemd or cron that start it."""
