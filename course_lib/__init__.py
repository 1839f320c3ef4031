"""Lean Transformers: the tested reference implementation of every idea in the course.

The sub-packages are stacked in lesson order, and each is imported by name where it is needed, so
`import course_lib` itself loads nothing heavy (not even torch).
"""

__version__ = "0.1.0"

# The one place that names the course's home on GitHub; links in the README and the notebooks are held to it.
REPOSITORY = "lean-transformers/lean-transformers"
