"""What commands print and how they take options."""
