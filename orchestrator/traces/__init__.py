"""Traces from outside: taken in event by event, kept exactly, shown and searched like our own."""
