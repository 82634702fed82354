"""What good means: criteria, grading and aggregation.

The core (everything but `models`, `admin`, `apps` and migrations) imports no Django, reads no
clock and touches no database. It is handed a `Transcript` and returns `Verdict`s and a `Score`;
what it needs from outside (a judge's model call, code in the sandbox) arrives as `Services`.
"""
