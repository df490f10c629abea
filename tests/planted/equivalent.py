"""Errors that change nothing which could be observed: ``drawn`` does not draw them.

By file: the text, what would stand in its place, and why nothing changes.
"""

EQUIVALENT: dict[str, list[tuple[str, str, str]]] = {
    "functrans/_compile/emit/module.py": [
        ("' \"prefer-vector-width\"=\"512\"' if wide else \"\"",
         "('' if wide else ' \"prefer-vector-width\"=\"512\"')",
         "how wide LLVM's vectors are changes no bit"),
    ],
    "functrans/_compile/lowering/special_kernels.py": [
        ("8.0", "(12.0)", "from 8 on the series holds, and so does the recurrence before it"),
        ("size <= 12.0", "(size < 12.0)", "at 12 both expansions hold"),
        ("40.0", "(60.0)", "from 39 on the tail is 0"),
    ],
    "functrans/_compile/run/entry.py": [
        ("shape == x.shape and numpy_functions()[ARRAY_TYPE] == id(np.ndarray)",
         "(shape == x.shape or numpy_functions()[ARRAY_TYPE] == id(np.ndarray))",
         "the layout is tried: the other half of the test fails where this one does"),
    ],
    "functrans/_compile/run/row_kernels.py": [
        ("64", "(65)", "how work is shared changes no bit"),
    ],
    "functrans/_compile/schedule/rematerialize.py": [
        ("self.build.joins(v, node.space)",
         "(self.build.joins(node.space, v))",
         "what is computed again, and what is read from memory, changes no bit"),
    ],
    "functrans/_compile/schedule/tiles.py": [
        ("len(k.loads) + len(k.stores)",
         "(len(k.loads) - len(k.stores))",
         "how work is shared changes no bit"),
    ],
    "functrans/_kernels/routines.py": [
        ("of_numpy() or of_scipy()",
         "(of_numpy() and of_scipy())",
         "either library's routines compute the same"),
    ],
    "functrans/_ops/special/incomplete.py": [
        ("a > 1",
         "(a >= 1)",
         "c is not used at a = 1, where the scale is 1 as the other formula says"),
    ],
    "functrans/_transforms/staging/entry.py": [
        ("(kwargs or names) and not take_named(kwargs, leaves)",
         "(not take_named(kwargs, leaves))",
         "without names there is nothing to take apart: a shorter way"),
    ],
    "functrans/_transforms/staging/environment.py": [
        ("issubclass(kind, CACHED)",
         "(issubclass(CACHED, kind))",
         "the type of cached functions has no subclass, and its base is no container"),
    ],
    "functrans/_transforms/staging/signature.py": [
        ("isinstance(a, Var) and a in known",
         "(a in known)",
         "no constant is in the set of variables"),
    ],
    "functrans/_transforms/staging/jit.py": [
        ("(kinds, *kwargs) if kwargs else kinds",
         "(kinds if kwargs else (kinds, *kwargs))",
         "a shortcut is used only where its own names fit"),
    ],
    "functrans/_transforms/staging/names.py": [
        ('{"functrans", "numpy", "scipy", *sys.stdlib_module_names} - {"__main__"}',
         "({'functrans', 'numpy', 'scipy', *sys.stdlib_module_names})",
         "no Python lists __main__; one that did must not make users' code a library"),
    ],
    "functrans/_transforms/staging/compiled.py": [
        ("1 | 4 | 8",
         "((1 | 4) & 8)",
         "bits that are not known are 0, with which results are searched instead: slower"),
    ],
    "functrans/numba/arrays.py": [
        ("element_of(a, b)",
         "(element_of(b, a))",
         "the element of two operands does not depend on their order"),
    ],
    "functrans/scipy/implicit.py": [
        ("0", "(1)", "the Jacobian is square there"),
    ],
    "functrans/scipy/optimize/squares.py": [
        ("np.sqrt(1 + z) - 1", "(np.sqrt(1 + z))", "only slopes of the losses are read"),
    ],
}
