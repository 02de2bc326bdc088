"""Watching it work: `logs` puts the job into log records, `escaping` keeps each to its line."""
