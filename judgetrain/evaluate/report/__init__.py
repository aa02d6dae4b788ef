"""Reports of evaluations: tables, figures, pages."""
