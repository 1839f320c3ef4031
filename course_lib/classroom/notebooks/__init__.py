"""The machinery that runs, refreshes, checks and solves the course's notebooks.

    python -m course_lib.classroom.notebooks lessons    every lesson to build/lessons/*.html, with a table
    python -m course_lib.classroom.notebooks refresh    execute in place and normalise, before a commit
    python -m course_lib.classroom.notebooks check      the rules for a notebook's JSON; executes nothing
    python -m course_lib.classroom.notebooks nbval      execute again and compare every stored output
    python -m course_lib.classroom.notebooks probe      the same, as a slower laptop would compute
    python -m course_lib.classroom.notebooks solve      a notebook with its exercises filled in

Each module does one of these and imports what it needs only when it is used, so that checking a
notebook needs neither a kernel nor a browser.
"""
