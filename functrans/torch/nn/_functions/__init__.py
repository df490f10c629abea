"""Functions of ``nn.functional``: tables of rows, and what is composed of them."""
