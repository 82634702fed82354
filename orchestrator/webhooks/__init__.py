"""Messages to other programs: signed, retried, and each of them on record.

A delivery is written in the transaction of the event that it tells of (`receivers`), so that
nothing is told that did not happen and nothing that happened is forgotten; a job sends it
(`sending`) until the other side answers 2xx or the attempts are used up. Signed by the Standard
Webhooks specification (https://www.standardwebhooks.com), version 1.
"""
