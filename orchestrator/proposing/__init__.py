"""Proposers that answer from outside: a model over HTTP, a person, an external agent.

`services.ask` makes one `Proposal` for each proposer of a round and a job for it. The job gathers
traces, writes the question (`optimizer.reflection`), asks, reads, lints, and ends the proposal as
answered or failed; `signals.proposal_answered` says so in the ending transaction. A proposer that
fails costs what it spent and nothing else: no error of it reaches the search.
"""
