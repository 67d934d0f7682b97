"""How results show themselves: terminal table, plain text, HTML table."""
