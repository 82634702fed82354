"""Tenancy: users, projects, roles and tokens. The only place where a right is decided.

Everything below a project is reached through `access`: an object is fetched and authorised in one
call, so that no view can forget the check.
"""
