#!/usr/bin/env python
"""Command-line door: `python manage.py up`, `migrate`, `check`, …"""

from __future__ import annotations

import os
import sys


def main() -> None:
    os.environ.setdefault("DJANGO_SETTINGS_MODULE", "orchestrator.settings")
    try:
        from django.core.management import execute_from_command_line
    except ImportError as error:
        sys.exit(
            f"Django is missing here ({error}). Run `make install`, then use .venv/bin/python."
        )
    execute_from_command_line(sys.argv)


if __name__ == "__main__":
    main()
