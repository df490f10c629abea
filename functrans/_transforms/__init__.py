"""Floor 4: one file, one transform. Each derives its rules from the rows' families."""
