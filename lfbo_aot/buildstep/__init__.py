"""The build step: what `pip install` and `pip wheel` do with a project's tuned database."""
