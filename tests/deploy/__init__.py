"""What `deploy/` holds, without an engine: every file is parsed, held against the schema of its
format, and every command, path, setting and name in it is looked up in the product.

`schemas/` holds the compose specification's JSON schema (Apache-2.0, as check-jsonschema has it)
and the part of the Kubernetes API's that is used (Apache-2.0, `scripts/kubernetes_schema.py`).
"""
