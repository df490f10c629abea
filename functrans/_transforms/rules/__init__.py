"""Functions whose derivative is given from outside: by rules, or by differences."""
