"""Programs with one problem each: for every kind of finding, the module of its name."""
