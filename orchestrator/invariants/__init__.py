"""What must hold in the database whatever was killed, and the program that looks.

It reads rows and the event log alone: no process, no memory, no file is asked. Each check is a
pure function over rows (`logs`, `rollouts`, `owners`, `jobs`, `budgets`, `webhooks`), so that a
test can hand it a broken row; `reading` gets the rows in the order that the checks need, as a
stream, so that a large installation is read without holding it; `verification` does both in one
snapshot.

- `verification.verify(at_rest=…)`  all findings, with what was looked at

`at_rest` asks for more: that nothing is queued or under way, which only holds when all work that
was started has come to its end.
"""
