"""The application: what runs, when, what happened, who may see it."""
