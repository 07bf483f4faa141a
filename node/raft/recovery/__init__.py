"""A member that has lost its log (`amnesia` decides, `amnesia_recovery` asks), and the log of a stopped member."""
