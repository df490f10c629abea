"""The graph, the walk back through it, and who is told what happens on the way."""
