"""Floor 4: compiled functions in readable form."""
