"""Bank statements against the ledger, through an outage longer than the runs live."""
