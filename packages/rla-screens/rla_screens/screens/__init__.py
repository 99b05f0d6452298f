"""Shared by all environments with a screen: points, deeds of mouse and keyboard, and the forms to write them in."""
