"""What tests of several modules build: engines that follow a script, trees, configured stages."""
