"""Large values of contexts: kept once each in the object store, by content."""
