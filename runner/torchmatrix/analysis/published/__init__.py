"""Other people's figures: read and checked, audited for impossible values, and set beside ours."""
