"""Attacks on a rubric, and the watch over what is climbed by it. Pure.

An attack makes a rollout that deserves nothing more than the one it was made of; a rubric that pays
more for it can be gamed, and a training that climbs on it will find out how.
"""
