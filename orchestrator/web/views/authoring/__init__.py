"""Pages on which environments are written: chooser, draft, tasks, uploads, publishing, versions."""
