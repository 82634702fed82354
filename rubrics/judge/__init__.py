"""Criteria that a model decides: what it is asked, how its reply is read, what is done about a bad
one. Pure; whoever grades hands in the function that makes the call.
"""
