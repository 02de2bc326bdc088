"""What several tests share: private brokers, and waiting on a condition to a deadline."""
