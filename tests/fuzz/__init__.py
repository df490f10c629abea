"""Random programs: compiled code against the same functions without compiling."""
