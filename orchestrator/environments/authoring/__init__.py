"""Environments written in the browser: drafts, tables of tasks, publishing, what changed.

`records`, `columns`, `values` and `rows` read tables of tasks without a database. `drafts`,
`uploads` and `publish` change drafts; `queries` reads them; `diff` compares versions; `export`
writes tables and folders again.
"""
