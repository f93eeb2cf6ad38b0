"""One page with all tables and figures."""
