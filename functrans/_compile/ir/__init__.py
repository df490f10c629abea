"""Programs: typed equations, the passes over them, and the tables that the passes read."""
