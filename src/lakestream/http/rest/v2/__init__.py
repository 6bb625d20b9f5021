"""Version 2 of the API, where clients use it: produce, and consumers that live at this door."""
