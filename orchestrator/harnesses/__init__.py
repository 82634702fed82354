"""The library of a project's harnesses: taken in, changed into new ones, compared, given out."""
