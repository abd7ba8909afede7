"""One module for each way to show what was found: text for people, JSON for programs."""
