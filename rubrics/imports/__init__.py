"""Rubrics of others, brought in and given back: OpenEnv's trees and Harbor's judge files.

What ours cannot say is returned as a list of losses, with its place; nothing is dropped silently.
"""
