"""What pytest leaves alone here: programs that import torch itself, and are run under its name."""

collect_ignore_glob = ["programs/*"]
