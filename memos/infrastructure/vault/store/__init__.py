"""SQLite and files: connections, transactions, locks, durable writes."""
