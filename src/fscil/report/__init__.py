"""Pictures and the single-file HTML report of results."""
