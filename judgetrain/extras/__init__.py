"""Extras: what plugs into the core, one folder a capability. The core imports none of them."""
