"""The kill matrix: the real product under load, faults at random moments, and what must still hold.

    make kills STACK=embedded MOMENTS=40 SEED=1 ONLY=worker,full-disk

- `product`    the processes: `manage.py up`, a second worker, and on STACK=scale a second web
               process, PostgreSQL and Valkey behind a proxy whose connections can be cut
- `shim`       a library under the product's processes: full, read-only and slow disk, jumps of
               the clock
- `world`      what the work is done on, and the REST client that asks for it, with its journal
- `activities` what is under way when a fault comes: from an ingest to the transition of a climb
- `faults`     what is done to it, and how it is taken away
- `matrix`     draws moments, strikes, waits until work goes on, and asks `orchestrator.invariants`
- `report`     JSON lines and a table

A moment passes if what was hit goes on by itself, no invariant is broken, nothing that was
acknowledged is missing, and nothing that had ended has changed. After the last moment all work is
waited for, and must have ended.
"""
