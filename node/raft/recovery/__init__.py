"""Recovery of a member that has lost its log (`amnesia`, `amnesia_recovery`), and the log of a stopped member."""
