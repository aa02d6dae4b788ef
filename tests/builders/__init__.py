"""What tests are built from, a module a room: configurations, files and records that several test modules need."""
