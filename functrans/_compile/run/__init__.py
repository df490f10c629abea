"""From text to machine code, kept in memory and on disk, and the calls into it."""
