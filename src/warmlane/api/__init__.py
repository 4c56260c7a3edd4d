"""The HTTP edge: three dialects over one spine."""
