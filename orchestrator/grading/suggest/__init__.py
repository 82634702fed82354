"""Criteria proposed by a model, from what an environment is and from traces. The author takes them
one by one, or not.
"""
