"""Reports for strangers: see `redactor`."""
