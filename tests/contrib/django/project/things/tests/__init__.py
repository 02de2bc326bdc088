"""Tests that run inside of Django; `test_inside.py` has `manage.py test` run them."""
