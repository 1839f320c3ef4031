"""What the course claims, measured: on what workload, against which peer (see ``python -m course_lib bench``)."""
