"""Orders, and the receipts that are sent for them."""
