"""Moving house: backups of an installation, restoring them, and the way into PostgreSQL.

A backup is one zip file: the database as it stood at one moment, the data folder's files, and a
manifest with the hash of every member. A SQLite database is kept as the file that SQLite's online
backup makes; a PostgreSQL database as one COPY per table from one snapshot, without `pg_dump`.
`copying` carries rows from one database into another through the models, compares both sides by
content, and writes all or nothing.
"""
