"""Loops that the user wrote, kept as loops: one equation of a program holds a nest of them.

| file | what it knows |
|---|---|
| `forms.py` | integers affine in the indices of loops, and what can be proved of them |
| `ir.py` | buffers, entries, loops, branches; the equation `Nest`: built, checked, printed |
| `interpret.py` | runs a nest entry by entry: the reference |

Nothing symbolic leaves a nest: operands and outputs have concrete types, entry programs are
programs of 0-d values, so rows, passes and transforms know nothing of symbols.
"""
