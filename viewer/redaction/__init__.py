"""Redacted reports, which may be shown to strangers: see `redactor`."""
