"""Other people's figures: read and checked, audited for what can't be, and set beside ours."""
