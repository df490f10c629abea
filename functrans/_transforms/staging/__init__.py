"""From functions to programs, compiled functions, and programs made from programs."""
