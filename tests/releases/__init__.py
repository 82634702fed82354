"""Migrations from every released version, with its data.

`fixtures/` holds one small database for each, made from a finished demo by
`scripts/release_fixture.py`. Until something is released, two states of the work stand in; they are
named by their commits.
"""
