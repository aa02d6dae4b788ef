"""Stage export: a judge that reads one response, as a sequence classifier."""
