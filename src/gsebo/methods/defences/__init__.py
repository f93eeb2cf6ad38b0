"""Defences against attacks on graphs: methods of other papers, and their networks."""
