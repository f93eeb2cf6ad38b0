"""Methods of other papers, each with its own mathematics."""
