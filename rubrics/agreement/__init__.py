"""How far a judge and people agree, and how sure that is. Pure.

What cannot be computed (one class only, no labels) is None, never a number that looks like one.
"""
