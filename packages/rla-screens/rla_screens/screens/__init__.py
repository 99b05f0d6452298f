"""What environments with a screen share: points, deeds of mouse and keyboard, and forms to write them in."""
