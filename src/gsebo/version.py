"""The version of the package, read by the build and stored with every result."""

__version__ = "0.1.0"
"""The version of the package."""
