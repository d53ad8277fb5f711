"""Records of meetings become cited reports: extract, summarise, format, each on its own queue."""
