"""What is native: how one entry of a row is computed, and which library routines are called."""
