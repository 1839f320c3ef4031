"""The commands that write with a model: `python -m course_lib generate` and `chat`."""
