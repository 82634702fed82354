"""Django's SQLite backend, with a queue for those who write (see `base`)."""
