"""Loops that the user wrote, kept as loops: one equation of a program holds a nest of them.

| file | what it knows |
|---|---|
| `forms.py` | integers affine in the indices of loops, and what can be proved of them |
| `ir.py` | buffers, entries, loops, branches |
| `check.py` | the rules that these keep |
| `text.py` | how they are printed and told apart |
| `interpret.py` | runs a nest entry by entry: the reference |
| `equation.py` | a nest as an equation of a program |
| `saved.py` | which values a backward reads although they are overwritten |
| `native.py` | a nest as the text of an LLVM function |

Nothing symbolic leaves a nest: operands and outputs have concrete types, entry programs are
programs of 0-d values, so rows, passes and transforms know nothing of symbols.
"""
