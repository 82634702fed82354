"""Stand-ins for what lies outside: real servers and processes, nothing patched inside."""
