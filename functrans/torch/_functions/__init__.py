"""Functions of tensors: tables of rows, and what is composed of them."""
