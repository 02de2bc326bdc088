"""Watching it work: `logs` puts the job into log records."""
