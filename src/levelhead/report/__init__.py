"""What people look at: charts of results. Results carry data only; nothing is computed here."""
