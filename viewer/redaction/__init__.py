"""Redacts reports that will be shown to strangers: see `redactor`."""
