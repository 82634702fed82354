"""The query language of lists: `score < 0.5 and verdict.file_exists < 1 "disk full"`.

`grammar` reads text into a tree with positions and knows no field. `fields` says what a list of
rollouts or of runs can be asked for, `compiling` turns a tree into one condition of the database,
`paging` cuts sorted rows into pages by keys. Pages, exports and saved views hold the same text.

A comparison says something only of what has a value: a rollout without a score is in neither
`score < 0.5` nor `score != 0.5`, while `not score < 0.5` is everything else. So a failure never
counts as a zero here either, and `not` is an honest complement.
"""
