"""The site: its settings and its addresses."""
