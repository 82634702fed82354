"""Which task comes next: samplers, what is known of each task, and the draws that were made.

`beta` and `samplers` are pure. `store` keeps estimates and draws: a draw is a fact under its step,
so that whoever resumes and asks for the same step again gets the same tasks, whatever has been
learned meanwhile. `queries` is what pages read.
"""
