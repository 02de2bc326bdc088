"""Made by `makemigrations`."""
