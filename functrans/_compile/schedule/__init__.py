"""From equations to steps: kernels, library calls, loops, and the memory between them."""
