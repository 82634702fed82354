"""An app that only tests install: jobs that count, raise, die and retry, for the recovery cases."""
