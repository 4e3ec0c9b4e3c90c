"""What the firmware does against faults, one file a defence; each can be left out."""
