"""Heavy CPU routines that graphs call by address, so that no graph compiles them again."""
