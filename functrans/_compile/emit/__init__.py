"""From steps to the text of an LLVM module."""
