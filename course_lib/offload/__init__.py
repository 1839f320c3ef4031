"""Models larger than memory (lessons 10 to 12)."""
