"""One module a lesson: its exercises with their checks, its widgets and its figures."""
