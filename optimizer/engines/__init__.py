"""Engines look for a better harness. Each is `run(task, server)`; the server is the only way to
spend (`optimizer.engines.contract`). To add one: write a module beside these and list it in
`optimizer.engines.registry`.
"""
