"""A night: measure, gate, pages, retention; its journal, and systemd's timers or the lines for cron that start it."""
