"""Bytes that are too large for a row, kept by what they are: the sha256 of their content.

`store()` is a folder (`blobs/` of the data folder) or a bucket of an S3 server, as
`SWITCHBACK_BLOBS` says; nobody above asks which. A blob never changes, so it is written as often as
one likes, kept in any number of caches, and a copy that was cut off is told by its hash. What names
a blob is a row; rows of the database decide what is kept (`orchestrator.blobs.keeping`). Folders of
files are kept as a list of blobs (`orchestrator.blobs.trees`).
"""
