"""What environments with a screen share: points, deeds of mouse and keyboard, and the forms that models write them in."""
