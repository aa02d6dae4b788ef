"""Stage calibrate: how much each of a judge's criteria counts, fitted on labelled comparisons."""
