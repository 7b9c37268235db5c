"""The processes that tuning starts. Each is run by `python -m` and talks over one channel."""
