"""Made by `manage.py makemigrations`."""
