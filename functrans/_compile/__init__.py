"""Floor 3: programs as data, and native code made of them. Knows no transform."""
