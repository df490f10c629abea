"""What must not change while code moves: programs, schedules, LLVM texts, public names, rows."""
