"""What a search hears, inside the transaction that records the news."""
