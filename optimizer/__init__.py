"""Better harnesses without touching weights: edits, screening, racing and certification.

The core (everything but `models`, `store`, `admin`, `apps` and migrations) imports no Django, reads
no clock and keeps no random state. A search is a function of its configuration and of the rollouts
that exist; whoever runs the rollouts decides where and when.
"""
