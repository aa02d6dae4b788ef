"""The kinds of judges, all behind one interface."""
