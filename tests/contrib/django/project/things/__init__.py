"""An app with a model, jobs and tasks."""
